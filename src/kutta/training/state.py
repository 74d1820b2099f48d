"""state.json of a checkpoint: where training is, besides weights and moments."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from kutta.errors import InputError
from kutta.training.window import Window


@dataclass
class Progress:
    """The best validation so far, for early stopping and the best checkpoint, and the log."""

    best: float | None = None
    best_step: NonNegativeInt = 0
    since_best: NonNegativeInt = 0
    by: Literal["loss", "bleu"] = "loss"
    window: Window = field(default_factory=Window)


class Scale(BaseModel):
    """The loss scale of fp16."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    value: PositiveFloat
    steady: NonNegativeInt


class State(BaseModel):
    """The contents of state.json; earlier versions did not save what has a default."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    step: NonNegativeInt
    position: NonNegativeInt
    pieces: PositiveInt = 1
    bad_steps: NonNegativeInt
    scheduled: bool = True
    scale: Scale | None = None
    progress: Progress
    versions: dict[str, str] = {}

    @classmethod
    def parse(cls, text: str | bytes, step: int, pieces: int, micro_batches: int) -> "State":
        """The state of the checkpoint of this step, in a run with this division of updates."""
        try:
            state = cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            key = ".".join(map(str, first["loc"]))
            raise InputError(f"state.json: {key} {first['msg']}".replace("  ", " ")) from None
        progress = state.progress
        contradictions = {
            f"its step is {state.step}, not {step}": state.step != step,
            f"its position is {state.position}, not {step} x {micro_batches} micro-batches": (
                state.position != step * micro_batches
            ),
            f"it divides batches by {state.pieces}, not {pieces}": state.pieces != pieces,
            f"it has {state.bad_steps} skipped steps": state.bad_steps > step,
            f"its best step is {progress.best_step}": progress.best_step > step,
            f"its best step {progress.best_step} has no value": (
                (progress.best is None) != (progress.best_step == 0)
            ),
            f"it has records of {progress.window.updates} steps": progress.window.updates > step,
        }
        for contradiction, found in contradictions.items():
            if found:
                raise InputError(f"state.json contradicts itself: {contradiction}")
        return state

    def to_dict(self) -> dict[str, Any]:
        progress = asdict(self.progress) | {"window": self.progress.window.to_dict()}
        return self.model_dump(exclude={"progress"}) | {"progress": progress}
