"""Scoring a model on test sets: translate, keep the hypotheses, and score them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kutta import __version__
from kutta.config import Config, DataConfig, DecodeConfig
from kutta.data.corpus import read_pairs
from kutta.data.tokenizer import join_pieces
from kutta.errors import InputError
from kutta.files import write_text
from kutta.metrics import Score, chrf, moses_languages, sacre_bleu, tokenized_bleu
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
    for name, pairs in test_texts(data, tests).items():
        found = translator.translate([source for source, _ in pairs], **options)
        references = reference_texts([target for _, target in pairs], data)
        path = _hypotheses(run, home) / f"{Path(name).name}.{data.target}"
        write_text(path, "".join(line + "\n" for line in found))
        scores = score_texts(found, references, data)
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


def score_texts(
    hypotheses: Sequence[str], references: Sequence[str], data: DataConfig
) -> list[Score]:
    """Tokenised BLEU (raw text is tokenised first), sacreBLEU and chrF."""
    rules = data.target if data.target in moses_languages() else "en"
    language = None if data.tokenizer == "split" else rules
    return [
        tokenized_bleu(hypotheses, references, language=language),
        sacre_bleu(hypotheses, references),
        chrf(hypotheses, references),
    ]


def valid_score(hypotheses: Sequence[str], references: Sequence[str], data: DataConfig) -> Score:
    """The one score to watch while training: as the data is, split or raw."""
    score = tokenized_bleu if data.tokenizer == "split" else sacre_bleu
    return score(hypotheses, reference_texts(references, data))


def run_signature(config: Config, run: Path) -> str:
    """What every score of a run, or of one of its checkpoints, depends on."""
    made = read_origin(run / WEIGHTS) or f"average:{config.decode.average}"
    if run.parent.name == "checkpoints":
        made = f"step:{int(run.name.rpartition('-')[2])}"
    return f"kutta:{__version__}|config:{config.hash()}|seed:{config.train.seed}|{made}"


def _search_signature(decode: DecodeConfig, options: Options) -> str:
    beam = options.get("beam") or decode.beam
    penalty = options.get("length_penalty")
    return f"beam:{beam}|penalty:{decode.length_penalty if penalty is None else penalty:g}"
