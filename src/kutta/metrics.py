"""How good a text is: BLEU both ways and chrF for translations, ROUGE for summaries.

Every metric here is two pure steps, `count` per sentence and `score` of the summed counts, because
a bootstrap resamples the counts and never looks at the text again. No score without its signature.
"""

import importlib.metadata
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF

from kutta.errors import InputError
from kutta.rouge import Variant, ngram_overlap, sequence_overlap, words_of

Lines = Sequence[str]
References = Lines | Sequence[Lines]  # one text, or several that are parallel to each other
Counts = NDArray[np.float64]  # float64 adds whole numbers exactly, and multiplies fast

ORDERS = range(1, 5)


@dataclass(frozen=True)
class Score:
    """One corpus score, with all that is needed to compare it with another one."""

    name: str
    value: float
    details: str
    signature: str

    def __str__(self) -> str:
        value = ", ".join(filter(None, [f"{self.value:.2f}", self.details]))
        return f"{self.name} = {value} [{self.signature}]"

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them, the value unrounded."""
        return asdict(self)


@dataclass(frozen=True)
class Metric:
    """A corpus metric; call it with hypotheses and references to get a Score."""

    count: Callable[[Lines, Sequence[Lines]], Counts]  # texts -> (sentences, K)
    score: Callable[[Counts, int], Score]  # sums (K,), number of references -> Score

    def __call__(self, hypotheses: Lines, references: References) -> Score:
        texts = parallel_texts(hypotheses, references)
        return self.score(self.count(hypotheses, texts).sum(axis=0), len(texts))


def parallel_texts(hypotheses: Lines, references: References) -> list[Lines]:
    """The references as a list of texts, each with one line for every hypothesis."""
    single = not references or isinstance(references[0], str)
    texts = [cast(Lines, references)] if single else list(cast(Sequence[Lines], references))
    for number, text in enumerate(texts, start=1):
        if len(text) != len(hypotheses):
            which = "the reference has" if len(texts) == 1 else f"reference {number} has"
            raise InputError(
                f"The hypotheses have {len(hypotheses)} lines but {which} {len(text)}; "
                "line n of one must translate the same sentence as line n of the other."
            )
    if not hypotheses:
        raise InputError("There is nothing to score: both texts have 0 lines; give at least one.")
    return texts


# ---- tokenised BLEU: the number Moses' multi-bleu.perl prints -------------------------------


def tokenized_bleu(
    hypotheses: Lines,
    references: References,
    lowercase: bool = False,
    language: str | None = None,
    split_compounds: bool = False,
) -> Score:
    """Tokenised BLEU of text that is already tokenised, or, given its `language`, of raw text."""
    return multi_bleu(lowercase, language, split_compounds)(hypotheses, references)


def multi_bleu(
    lowercase: bool = False, language: str | None = None, split_compounds: bool = False
) -> Metric:
    """The metric behind `tokenized_bleu`: BLEU-4 over white-space tokens, without smoothing."""
    case = "lc-ascii" if lowercase else "mixed"
    moses = f"moses-{language}-sacremoses-{_version('sacremoses')}" if language else "none"
    settings = f"case:{case}|tok:{moses}{'+atat' if split_compounds else ''}"

    def tokens(lines: Lines) -> list[list[bytes]]:
        tokenized = moses_tokenize(lines, language) if language else lines
        split = map(split_hyphens, tokenized) if split_compounds else tokenized
        # Perl reads bytes, so only ASCII letters have a case and only ASCII spaces part words.
        encoded = (line.encode("utf-8", "surrogatepass") for line in split)
        return [(line.lower() if lowercase else line).split() for line in encoded]

    def count(hypotheses: Lines, references: Sequence[Lines]) -> Counts:
        parallel = zip(tokens(hypotheses), *map(tokens, references), strict=True)
        return np.array([_sentence_counts(*sentence) for sentence in parallel], dtype=np.float64)

    return Metric(count, partial(_score_multi_bleu, settings))


def moses_tokenize(lines: Lines, language: str) -> list[str]:
    """Tokenise raw text as Moses' tokenizer.perl does (with its `&quot;` for a quote)."""
    from sacremoses import MosesTokenizer  # slow to import, and seldom needed

    if language not in moses_languages():
        raise InputError(
            f"The Moses tokenizer has no rules for the language '{language}'; choose one of "
            f"{', '.join(moses_languages())} ('en' is what Moses takes for the others)."
        )
    tokenize = cast(Callable[..., str], MosesTokenizer(lang=language).tokenize)  # pyright: ignore[reportUnknownMemberType]
    return [tokenize(line, return_str=True) for line in lines]


def moses_languages() -> list[str]:
    """The languages for which Moses has rules of its own."""
    from sacremoses.corpus import NonbreakingPrefixes

    return sorted(set(NonbreakingPrefixes().available_langs.values()))


def split_hyphens(line: str) -> str:
    """Split compounds as published WMT14 En-De scores do: a-b is a ##AT##-##AT## b; a-b-c once."""
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line, flags=re.ASCII)


def _sentence_counts(hypothesis: list[bytes], *references: list[bytes]) -> list[int]:
    """Ten counts: hypothesis length, reference length, 4 x matched n-grams, 4 x all n-grams.

    Of several references the length closest to the hypothesis counts; of two as close, the shorter.
    """
    length = len(hypothesis)
    closest = min(map(len, references), key=lambda n: (abs(n - length), n))
    allowed: Counter[tuple[bytes, ...]] = Counter()
    for reference in references:
        allowed |= _ngrams(reference)
    matched = dict.fromkeys(ORDERS, 0)
    for ngram, count in _ngrams(hypothesis).items():
        matched[len(ngram)] += min(count, allowed[ngram])
    return [length, closest, *matched.values(), *(max(length - n + 1, 0) for n in ORDERS)]


def _ngrams(tokens: list[bytes]) -> Counter[tuple[bytes, ...]]:
    return Counter(tuple(tokens[i : i + n]) for n in ORDERS for i in range(len(tokens) - n + 1))


def _score_multi_bleu(settings: str, sums: Counts, references: int) -> Score:
    """BLEU of the summed counts (10,)."""
    hyp_len, ref_len, *ngrams = (int(count) for count in sums)
    precisions = [m / n if n else 0.0 for m, n in zip(ngrams[:4], ngrams[4:], strict=True)]
    penalty = 1.0
    if hyp_len < ref_len:
        penalty = math.exp(1 - ref_len / hyp_len) if hyp_len else 0.0
    mean = math.exp(sum(map(math.log, precisions)) / 4) if all(precisions) else 0.0
    return Score(
        name="BLEU",
        value=100 * (penalty * mean),
        details=_bleu_details([100 * p for p in precisions], penalty, hyp_len, ref_len),
        signature=f"kutta|tokenized|multi-bleu|nrefs:{references}|{settings}"
        f"|smooth:none|version:{_version('kutta')}",
    )


def _bleu_details(precisions: list[float], penalty: float, hyp_len: int, ref_len: int) -> str:
    """The part multi-bleu.perl prints after the score, digit for digit."""
    ratio = hyp_len / ref_len if ref_len else 0.0
    return (
        f"{'/'.join(f'{p:.1f}' for p in precisions)} "
        f"(BP={penalty:.3f}, ratio={ratio:.3f}, hyp_len={hyp_len}, ref_len={ref_len})"
    )


@cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # a source tree on the path, never installed
        return "uninstalled"


# ---- sacreBLEU and chrF: sacrebleu's numbers under sacrebleu's signatures --------------------


# `force` only silences a warning about text that looks tokenised, which split text is.
_BLEU = partial(BLEU, force=True)


def sacre_bleu(hypotheses: Lines, references: References) -> Score:
    """SacreBLEU's BLEU (13a tokens, exponential smoothing) of detokenised text."""
    return _sacre(_BLEU)(hypotheses, references)


def chrf(hypotheses: Lines, references: References, word_order: int = 0) -> Score:
    """The character n-gram F-score chrF2; with `word_order=2`, chrF2++."""
    return _sacre(partial(CHRF, word_order=word_order))(hypotheses, references)


def _sacre(make: Callable[[], BLEU | CHRF]) -> Metric:
    # The two underscored methods are where sacrebleu's own significance tests part counting from
    # scoring; its public functions go from text to score, which a bootstrap cannot afford.
    def count(hypotheses: Lines, references: Sequence[Lines]) -> Counts:
        counts = make()._extract_corpus_statistics(hypotheses, references)  # pyright: ignore[reportPrivateUsage]
        return np.array(counts, dtype=np.float64)

    def score(sums: Counts, references: int) -> Score:
        metric = make()
        metric.num_refs = references
        result = metric._compute_score_from_stats(sums.tolist())  # pyright: ignore[reportPrivateUsage]
        signature = metric.get_signature().format()
        if not isinstance(result, BLEUScore):
            return Score(result.name, result.score, "", signature)
        details = _bleu_details(result.precisions, result.bp, result.sys_len, result.ref_len)
        return Score("sacreBLEU", result.score, details, signature)

    return Metric(count, score)


# ---- ROUGE: the mean over sentences ----------------------------------------------------------


def rouge(name: str, overlap: Variant) -> Metric:
    """F1 of the best reference of each sentence, in the mean; `name` as in ROUGE-name."""

    def count(hypotheses: Lines, references: Sequence[Lines]) -> Counts:
        """(sentences, 4): 1, F1, precision, recall."""
        ours = map(words_of, hypotheses)
        theirs = zip(*(map(words_of, text) for text in references), strict=True)
        best = (
            max((overlap(words, rival) for rival in rivals), key=lambda o: o.f1)
            for words, rivals in zip(ours, theirs, strict=True)
        )
        return np.array([(1.0, o.f1, o.precision, o.recall) for o in best])

    def score(sums: Counts, references: int) -> Score:
        f1, precision, recall = (100 * float(total) for total in sums[1:] / sums[0])
        return Score(
            name=f"ROUGE-{name}",
            value=f1,
            details=f"P={precision:.2f}, R={recall:.2f}",
            signature=f"kutta|rouge-{name}|nrefs:{references}|case:lc|tok:alphanumeric|stem:no"
            f"|f1:mean-of-best|version:{_version('kutta')}",
        )

    return Metric(count, score)


METRICS: dict[str, Metric] = {
    "bleu": multi_bleu(),
    "sacrebleu": _sacre(_BLEU),
    "chrf": _sacre(CHRF),
    "chrf++": _sacre(partial(CHRF, word_order=2)),
    "rouge1": rouge("1", ngram_overlap(1)),
    "rouge2": rouge("2", ngram_overlap(2)),
    "rougel": rouge("L", sequence_overlap),
}
