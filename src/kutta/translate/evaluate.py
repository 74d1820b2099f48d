"""Evaluating a model on test sets: translate, save the hypotheses, and score them."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from kutta.box import is_in_box
from kutta.config import DataConfig, DecodeConfig, SearchOptions
from kutta.errors import InputError
from kutta.files import write_text
from kutta.metrics import Score
from kutta.metrics.texts import reference_texts, score_texts
from kutta.runs import Run
from kutta.runs.texts import Pairs, Texts
from kutta.translate.translator import Translator


@dataclass(frozen=True)
class Evaluation:
    """The scores of one test set, with their signature."""

    test: str
    sentences: int
    scores: list[Score]
    hypotheses: Path | None  # a language model has none
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"hypotheses": self.hypotheses and str(self.hypotheses)}


@dataclass(frozen=True)
class EvalSet:
    """A test set: its name, its sentence pairs, and its raw references if there are any."""

    name: str
    pairs: Pairs
    raw: list[str] | None

    def references(self, data: DataConfig) -> list[str]:
        """Its references in the form of hypotheses."""
        return reference_texts([target for _, target in self.pairs], data)


def eval_sets(run: Run, tests: Sequence[str] = (), data_dir: str | None = None) -> list[EvalSet]:
    """Read test sets, by default those of the config, from `data_dir` if given.

    All are read before the first is translated.
    """
    names = tests or run.config.data.test
    if not names:
        raise InputError("There is no test set; give one, or list them as data.test in the config.")
    texts = texts_of(run, data_dir)
    pairs_of = {name: texts.test(name) for name in names}
    return [
        EvalSet(name, pairs, texts.raw_references(name, len(pairs)))
        for name, pairs in pairs_of.items()
    ]


def evaluate_set(
    run: Run,
    translator: Translator,
    test: EvalSet,
    on_lines: Callable[[int], None] | None = None,
    **search: Unpack[SearchOptions],
) -> Evaluation:
    """Translate a test set, keep the translations in the run, and score them."""
    decode, data = translator.config.changed(**search), run.config.data
    found = translator.translate([source for source, _ in test.pairs], on_lines=on_lines, **search)
    path = run.outputs("hypotheses") / f"{Path(test.name).name}.{data.target}"
    write_text(path, "".join(line + "\n" for line in found))
    scores = score_texts(found, test.references(data), data, test.raw)
    runtime = f"runtime:{translator.precision}|" if translator.precision else ""
    signature = f"{run.signature}|{runtime}{_search_signature(decode)}"
    return Evaluation(test.name, len(test.pairs), scores, path, signature)


def texts_of(run: Run, data_dir: str | None) -> Texts:
    """The text in a run, or in another folder; a model in the box has its text in data.dir."""
    if data_dir is None:
        return replace(run.texts, foreign=not is_in_box(run.path))
    return Texts(None, run.config.data.model_copy(update={"dir": data_dir}), foreign=True)


def _search_signature(decode: DecodeConfig) -> str:
    """Beam, length penalty, and every other search option that is not the default."""
    settings = DecodeConfig.model_fields
    used = {name: getattr(decode, name) for name in SearchOptions.__annotations__}
    always = f"beam:{used.pop('beam')}|penalty:{used.pop('length_penalty'):g}"
    unusual = (f"{name}:{used[name]}" for name in used if used[name] != settings[name].default)
    return "|".join([always, *unusual])
