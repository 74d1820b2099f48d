"""The final model: which checkpoints it is made of, and how the candidates did on validation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kutta.config import Config
from kutta.runs import Checkpoint, Run
from kutta.training.validate import Validation, improves

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
    regular = run.regular_checkpoints()[-config.train.keep_last :]
    last = Candidate(f"the last checkpoint, step {regular[-1].step}", regular[-1:])
    found = [one for one in run.checkpoints() if one.step == best_step]
    best = [Candidate(f"the best checkpoint, step {one.step}", [one]) for one in found]
    averages = [_average(regular, count) for count in _counts(config, len(regular))]
    if config.train.final_model == "average":
        return averages[:1]
    if config.train.final_model != "validated":
        return (best or [last]) if config.train.final_model == "best" else [last]
    unique = {tuple(one.checkpoints): one for one in reversed([*averages, last, *best])}
    return list(reversed(unique.values()))


def _counts(config: Config, there: int) -> list[int]:
    """How many checkpoints are averaged: decode.average first, then others where there are more."""
    asked = min(config.decode.average, there)
    return list(dict.fromkeys([asked, *(count for count in _AVERAGED if count <= there)]))


def _average(regular: Sequence[Checkpoint], count: int) -> Candidate:
    return Candidate(f"the average of the last {count} checkpoints", regular[-count:])


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
