"""Inside the solver: what the blocks of a model do with one sentence, and what other methods do.

Only this file of the server imports torch. All numbers are those of `kutta.analysis`, for one
sentence and the translation that the model gives it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from kutta.analysis.blocks import measure_blocks
from kutta.analysis.observe import Place, Seen, stacks_of, times_of, watch
from kutta.analysis.subject import Subject
from kutta.analysis.truncation import measure_truncation
from kutta.analysis.variants import not_an_ode, with_method
from kutta.data.batches import Batch
from kutta.data.tokenizer import Ids, Tokenizer
from kutta.errors import InputError
from kutta.model import TranslationModel
from kutta.runs import Run
from kutta.translate import Translator

METHODS = ("euler", "rk2", "rk4")
_KEPT = 4  # models with another method that are kept in memory

Numbers = list[float | None]


@dataclass(frozen=True)
class Inside:
    """The view into one model."""

    subject: Subject  # without sentences: each request brings its own
    translator: Translator

    @classmethod
    def of(cls, folder: Path, engine: Any) -> "Inside":
        """The view into a loaded translator. It has its own copy of the model."""
        run = Run.load(folder)
        model = run.build_model()
        loaded = cast(Translator, engine).models[0]
        if isinstance(loaded, TranslationModel):  # the folder may have changed meanwhile
            model.load_state_dict(loaded.state_dict())
        else:
            model = run.load_model()
        device = torch.device("cpu")
        subject = Subject(run, model.eval(), device, "typed", [], [])
        assert isinstance(model, TranslationModel)
        return cls(subject, _translator(subject, model))

    def states(self, sentence: str) -> dict[str, Any]:
        """The trajectory of a sentence: norms, steps, stages and weights of every block."""
        one, text = self._with(sentence)
        rows = measure_blocks(one, _untracked)["rows"]
        config = self.subject.config.model
        source, target = one.pairs[0]
        sides = {
            "encoder": (one.tokenizers.source, source),
            "decoder": (one.tokenizers.target, target),
        }
        methods = {"encoder": config.solver, "decoder": config.decoder_solver}
        seen = _states(one)
        return {
            "translation": text,
            "ode": not_an_ode(config) or "",
            "stacks": [
                {
                    "name": name,
                    "method": methods[name],
                    "tokens": _subwords(*sides[name], shifted=name == "decoder"),
                    "blocks": [_finite(row) for row in rows if row["stack"] == name],
                    **_trajectory(seen[name], mark=0 if name == "decoder" else -1),
                }
                for name in stacks_of(one.model)
            ],
        }

    def truncation(self, sentence: str) -> dict[str, Any]:
        """The error of the step of every block, and that of Euler, RK2 and RK4 at its place.

        Where the trained step covers a time other than 1, the errors are those over that time.
        """
        if reason := not_an_ode(self.subject.config.model):
            raise InputError(f"There is no truncation error, because {reason}.")
        one, _ = self._with(sentence)
        rows = [
            row for row in measure_truncation(one, _untracked)["rows"] if row["view"] == "block"
        ]
        errors: dict[Place, dict[str, Any]] = {}
        for row in rows:  # the row of the own time comes after that of time 1, and replaces it
            place = Place(row["stack"], row["layer"], row["sublayers"])
            block = errors.setdefault(place, {**vars(place), "span": 1.0, "errors": {}})
            block["span"] = row["span"]
            block["errors"][row["method"]] = row.get("error")
        return {"blocks": [_finite(block) for block in errors.values()]}

    def methods(self, sentence: str, stack: str, substeps: int) -> dict[str, Any]:
        """The translations by the same weights under Euler, RK2 and RK4 in one stack."""
        if reason := not_an_ode(self.subject.config.model):
            raise InputError(f"The method cannot be changed, because {reason}.")
        trained = self.translator.hypotheses([sentence])[0][0]
        rows = [{"method": "trained", "translation": trained[0], "score": trained[1]}]
        for method in METHODS:
            text, score = self._variant(stack, method, substeps).hypotheses([sentence])[0][0]
            rows.append({"method": method, "translation": text, "score": score})
        return {"stack": stack, "substeps": substeps, "rows": [_finite(row) for row in rows]}

    def _with(self, sentence: str) -> tuple[Subject, str]:
        """The subject with one sentence and its translation as the target, and that as text."""
        known = self.subject.tokenizers
        text = self.translator.translate([sentence])[0]
        pair = known.source.encode(sentence), known.target.encode(text)
        return replace(self.subject, pairs=[pair], references=[text]), text

    def _variant(self, stack: str, method: str, substeps: int) -> Translator:
        return _variant(self, stack, method, substeps)

    def __hash__(self) -> int:
        return id(self)


@lru_cache(maxsize=_KEPT * len(METHODS))
def _variant(inside: Inside, stack: str, method: str, substeps: int) -> Translator:
    """The model with another method over the time that its blocks cover."""
    subject = inside.subject
    times = [time for place, time in times_of(subject.model).items() if place.stack == stack]
    own_time = any(abs(time - 1) > 1e-6 for time in times)
    model = with_method(subject, stack, method, substeps, own_time)
    assert isinstance(model, TranslationModel)
    return _translator(subject, model)


def _translator(subject: Subject, model: TranslationModel) -> Translator:
    data, decode = subject.config.data, subject.config.decode
    return Translator(
        model,
        subject.tokenizers,
        decode,
        subject.device,
        max_source=data.max_source,
        max_length=data.max_length,
    )


def _untracked(batches: Sequence[Batch], _: str) -> Iterable[Batch]:
    return batches


def _states(one: Subject) -> dict[str, list[Tensor]]:
    """The states (T, d) of every stack: its input, and after every block."""
    seen: dict[str, list[Tensor]] = {}

    def on_step(step: Seen) -> None:
        states = seen.setdefault(step.place.stack, [step.y[:, 0].float()])
        states.append(step.after[:, 0].float())

    watch(one.model, one.one_by_one(), on_step)
    return seen


def _trajectory(states: list[Tensor], mark: int) -> dict[str, Any]:
    """The length of every token's state after every block, and its path in a plane.

    The plane is that of the two directions in which the states vary most (PCA). The mark of the end
    or the start is no word and moves far from all others, so it has no path. Shapes: norms
    (blocks + 1, T), path (blocks + 1, T, 2) with None for the mark.
    """
    y = torch.stack(states)  # (blocks + 1, T, d)
    words = y[:, 1:] if mark == 0 else y[:, :-1]
    flat = words.flatten(0, 1)
    centred = flat - flat.mean(dim=0)
    # torch does not say the types of what svd returns.
    found = cast(Sequence[Tensor], torch.linalg.svd(centred, full_matrices=False))  # type: ignore[reportUnknownMemberType]
    sizes, directions = found[1], found[2]
    plane = (centred @ directions[:2].T).reshape(*words.shape[:2], -1)
    share = sizes.square() / sizes.square().sum().clamp_min(1e-30)
    path = _rounded(plane)
    for row in path:
        row.insert(0 if mark == 0 else len(row), None)
    return {
        "norms": _rounded(y.square().mean(dim=-1).sqrt()),
        "path": path,
        "explained": _rounded(share[:2]),
    }


def _rounded(values: Tensor) -> Any:
    """Nested lists of numbers, None where they are not finite."""
    if values.dim() == 0:
        number = float(values)
        return round(number, 4) if math.isfinite(number) else None
    return [_rounded(one) for one in values]


def _subwords(tokenizer: Tokenizer, ids: Ids, shifted: bool) -> list[str]:
    """The text of every position; a decoder reads the previous token, an encoder ends with one."""
    texts = [tokenizer.decode([int(one)]) or "·" for one in ids]
    return ["start", *texts] if shifted else [*texts, "end"]


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_finite(one) for one in cast(list[Any], value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
