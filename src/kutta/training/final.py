"""The final model: which checkpoints it is made of, and how the candidates did on validation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from warnings import warn

from kutta.errors import InputError, Unreadable
from kutta.integrity import check
from kutta.runs import Checkpoint, Run
from kutta.runs.checkpoints import regular_checkpoints
from kutta.runs.run import MADE
from kutta.training.validate import Validation, improves

# Settings that decide when a run ends and what its final model is.
_DECIDING = (
    *("train.max_steps", "train.patience", "train.best", "train.final_model", "train.keep_last"),
    "decode.average",
)
_AVERAGED = (2, 3, 5, 10)  # numbers of last checkpoints whose averages are candidates


@dataclass(frozen=True)
class Candidate:
    """Weights that the final model could have: the mean of these checkpoints."""

    name: str
    checkpoints: Sequence[Checkpoint]
    validation: Validation | None = None


def candidates(run: Run, best_step: int) -> list[Candidate]:
    """What train.final_model allows, the usual choice first; each set of checkpoints once."""
    config = run.config
    regular = regular_checkpoints(run.path)[-config.train.keep_last :]
    last = Candidate(f"the last checkpoint, step {regular[-1].step}", regular[-1:])
    found = [one for one in run.checkpoints() if one.step == best_step]
    best = [Candidate(f"the best checkpoint, step {one.step}", [one]) for one in found]
    counts = dict.fromkeys([min(config.decode.average, len(regular)), *_AVERAGED])
    averages = [
        Candidate(f"the average of the last {count} checkpoints", regular[-count:])
        if count > 1
        else last
        for count in counts
        if count <= len(regular)
    ]
    unique: dict[tuple[Checkpoint, ...], Candidate] = {}
    for one in (*averages, last, *best):
        unique.setdefault(tuple(one.checkpoints), one)
    return {
        "average": averages[:1],
        "last": [last],
        "best": best or [last],
        "validated": list(unique.values()),
    }[config.train.final_model]


def final_record(run: Run, step: int, ended: str, weights: str) -> dict[str, Any]:
    """The record of a final model, written after it: training has ended at this step, like this."""
    settings = {key: run.config.value(key) for key in _DECIDING}
    return {"kind": "final", "step": step, "ended": ended, "weights": weights} | settings


def final_model_of(run: Run) -> dict[str, Any] | None:
    """The record of the final model if it is there, and what these settings lead to; else None."""
    checkpoints, made = run.checkpoints(), [one for one in run.records() if one["kind"] in MADE]
    records = [one for one in made if one["kind"] == "final"]
    if not (checkpoints and records and run.final_weights.is_file() and run.card.is_file()):
        return None
    try:
        check(run.final_weights, "it is made again from the checkpoints")
    except Unreadable:
        raise
    except InputError as error:
        warn(str(error), stacklevel=2)
        return None
    last = records[-1]
    expected = final_record(run, checkpoints[-1].step, last["ended"], last["weights"])
    return last | {"weights": made[-1]["weights"]} if last == expected else None


def choose(
    found: Sequence[Candidate], validate: Callable[[Candidate], Validation], by: str
) -> tuple[Candidate, list[Candidate]]:
    """The best of the candidates by "loss" or "bleu", and all of them with their validations."""
    measured = [replace(one, validation=validate(one)) for one in found]
    chosen, value = measured[0], None
    for one in measured:
        assert one.validation is not None
        better, reached = improves(one.validation, value, by)
        if better:
            chosen, value = one, reached
    return chosen, measured
