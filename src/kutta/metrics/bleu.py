"""Tokenised BLEU, as computed by Moses' multi-bleu.perl."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np

from kutta.metrics.moses import moses_signature, moses_tokenize, split_hyphens
from kutta.metrics.score import Counts, Lines, Metric, References, Score, version_of

ORDERS = range(1, 5)


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
    moses = moses_signature(language) if language else "none"
    settings = f"case:{case}|tok:{moses}{'+atat' if split_compounds else ''}"

    def tokens(lines: Lines) -> list[list[bytes]]:
        tokenized = moses_tokenize(lines, language) if language else lines
        split = map(split_hyphens, tokenized) if split_compounds else tokenized
        # Perl reads bytes, so only ASCII letters have case and only ASCII spaces separate words.
        encoded = (line.encode("utf-8", "surrogatepass") for line in split)
        return [(line.lower() if lowercase else line).split() for line in encoded]

    def count(hypotheses: Lines, references: Sequence[Lines]) -> Counts:
        parallel = zip(tokens(hypotheses), *map(tokens, references), strict=True)
        return np.array([_sentence_counts(*sentence) for sentence in parallel], dtype=np.float64)

    return Metric(count, partial(_score_multi_bleu, settings))


def _sentence_counts(hypothesis: list[bytes], *references: list[bytes]) -> list[int]:
    """Ten counts: hypothesis length, reference length, 4 x matched n-grams, 4 x all n-grams.

    With several references, the length closest to the hypothesis counts; of ties, the shorter.
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
        details=bleu_details([100 * p for p in precisions], penalty, hyp_len, ref_len),
        signature=f"kutta|tokenized|multi-bleu|nrefs:{references}|{settings}"
        f"|smooth:none|version:{version_of('kutta')}",
    )


def bleu_details(precisions: list[float], penalty: float, hyp_len: int, ref_len: int) -> str:
    """What multi-bleu.perl prints after the score, in the same format."""
    ratio = hyp_len / ref_len if ref_len else 0.0
    return (
        f"{'/'.join(f'{p:.1f}' for p in precisions)} "
        f"(BP={penalty:.3f}, ratio={ratio:.3f}, hyp_len={hyp_len}, ref_len={ref_len})"
    )
