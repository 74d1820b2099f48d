"""Scoring a model on test sets: translate, keep the hypotheses, and score them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kutta import __version__
from kutta.config import Config, DataConfig, DecodeConfig
from kutta.data.corpus import read_lines, read_pairs
from kutta.data.tokenizer import join_pieces
from kutta.errors import InputError
from kutta.files import write_text
from kutta.metrics import (
    Score,
    chrf,
    moses_detokenize,
    moses_rules,
    moses_signature,
    sacre_bleu,
    tokenized_bleu,
)
from kutta.model.weights import read_origin
from kutta.translate.loading import WEIGHTS, home_of
from kutta.translate.translator import Options, Translator


@dataclass(frozen=True)
class Evaluation:
    """The scores of one test set, and everything they depend on."""

    test: str
    sentences: int
    scores: list[Score]
    hypotheses: Path | None  # a language model has none
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "test": self.test,
            "sentences": self.sentences,
            "scores": [score.to_dict() for score in self.scores],
            "hypotheses": None if self.hypotheses is None else str(self.hypotheses),
            "signature": self.signature,
        }


def evaluate(
    run: Path,
    translator: Translator,
    data: DataConfig,
    tests: Sequence[str] = (),
    options: Options | None = None,
) -> list[Evaluation]:
    """Score test sets (those of the config where none are named); data.dir tells where they are."""
    options = options or {}
    home = home_of(run)
    signature = run_signature(Config.load(home / "config.json"), run)
    results: list[Evaluation] = []
    texts = test_texts(data, tests)
    raw = {name: raw_references(data, name, len(pairs)) for name, pairs in texts.items()}
    for name, pairs in texts.items():
        found = translator.translate([source for source, _ in pairs], **options)
        references = reference_texts([target for _, target in pairs], data)
        path = _hypotheses(run, home) / f"{Path(name).name}.{data.target}"
        write_text(path, "".join(line + "\n" for line in found))
        scores = score_texts(found, references, data, raw[name])
        searched = f"{signature}|{_search_signature(translator.config, options)}"
        results.append(Evaluation(name, len(pairs), scores, path, searched))
    return results


def _hypotheses(run: Path, home: Path) -> Path:
    """Where translations are kept: in the run, also for its checkpoints, which come and go."""
    folder = home / "hypotheses"
    return folder if run.absolute() == home.absolute() else folder / run.absolute().name


def test_texts(data: DataConfig, tests: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """The pairs of each test set by name: those of the config where none are named."""
    names = tests or data.test
    if not names:
        raise InputError("No test set is named; give one, or list them as data.test in the config.")
    return {n: list(read_pairs(Path(data.dir), n, data.source, data.target)) for n in names}


def reference_texts(lines: Sequence[str], data: DataConfig) -> list[str]:
    """References as hypotheses are written: pieces of split text are joined to words."""
    return [join_pieces(line) for line in lines] if data.tokenizer == "split" else list(lines)


def raw_references(data: DataConfig, test: str, lines: int) -> list[str] | None:
    """The raw references of a test set of split text; None where the data names none."""
    if test not in data.raw_references:
        return None
    path = Path(data.dir) / data.raw_references[test]
    raw = list(read_lines(path))
    if len(raw) != lines:
        raise InputError(
            f"{path} has {len(raw):,} lines but the test set {test!r} has {lines:,}; name the raw "
            "text of the same sentences in data.raw_references."
        )
    return raw


def score_texts(
    hypotheses: Sequence[str],
    references: Sequence[str],
    data: DataConfig,
    raw: Sequence[str] | None = None,
) -> list[Score]:
    """Tokenised BLEU, sacreBLEU and chrF.

    sacreBLEU and chrF are for raw text. Translations of split text are detokenised and scored
    against `raw` references; where there are none, name and signature say that the text was
    tokenised, because such a score does not compare with sacreBLEU of raw text.
    """
    bleu = _bleu(hypotheses, references, data)
    if data.tokenizer != "split":
        return [bleu, sacre_bleu(hypotheses, references), chrf(hypotheses, references)]
    if raw is None:
        scores = sacre_bleu(hypotheses, references), chrf(hypotheses, references)
        return [bleu, *map(_of_tokenised_text, scores)]
    rules, lower = moses_rules(data.target), data.lowercased
    found = moses_detokenize(hypotheses, rules)
    scores = sacre_bleu(found, raw, lower), chrf(found, raw, lowercase=lower)
    made = f"detok:{moses_signature(rules)}"
    return [bleu, *(replace(one, signature=f"{one.signature}|{made}") for one in scores)]


def tokenised(metric: str) -> str:
    """The name of a metric of raw text where it was computed on tokenised text."""
    return f"{metric} (tokenised text)"


def _of_tokenised_text(score: Score) -> Score:
    name, signature = tokenised(score.name), f"{score.signature}|text:tokenised"
    return replace(score, name=name, signature=signature)


def _bleu(hypotheses: Sequence[str], references: Sequence[str], data: DataConfig) -> Score:
    """Tokenised BLEU; raw text is tokenised first."""
    language = None if data.tokenizer == "split" else moses_rules(data.target)
    return tokenized_bleu(
        hypotheses, references, language=language, split_compounds=data.split_compounds
    )


def valid_score(hypotheses: Sequence[str], references: Sequence[str], data: DataConfig) -> Score:
    """The one score to watch while training: as the test sets are scored, split or raw."""
    texts = reference_texts(references, data)
    if data.tokenizer == "split" or data.split_compounds:
        return _bleu(hypotheses, texts, data)
    return sacre_bleu(hypotheses, texts)


def run_signature(config: Config, run: Path) -> str:
    """What every score of a run, or of one of its checkpoints, depends on."""
    made = read_origin(run / WEIGHTS) or f"average:{config.decode.average}"
    if run.parent.name == "checkpoints":
        made = f"step:{int(run.name.rpartition('-')[2])}"
    return f"kutta:{__version__}|config:{config.hash()}|seed:{config.train.seed}|{made}"


def _search_signature(decode: DecodeConfig, options: Options) -> str:
    """Beam and length penalty, and every other option of the search that is not the usual one."""
    changed = {name: value for name, value in options.items() if value is not None}
    used = decode.model_dump() | changed
    usual = DecodeConfig.model_fields
    others = ("min_length", "max_length", "no_repeat_ngram")
    unusual = (f"{name}:{used[name]}" for name in others if used[name] != usual[name].default)
    return "|".join([f"beam:{used['beam']}|penalty:{used['length_penalty']:g}", *unusual])
