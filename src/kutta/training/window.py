"""The updates since the last record of training, summed up."""

import math
from dataclasses import dataclass, replace
from typing import Any

from pydantic import NonNegativeFloat, NonNegativeInt

from kutta.training.loop import Step


@dataclass(frozen=True)
class Window:
    """Sums over some updates; those of losses and norms leave skipped updates out.

    A checkpoint saves it, so that the next record is the same after an interruption, but for the
    speed: `seconds` and `timed`, the tokens of these seconds, are those since then.
    """

    updates: NonNegativeInt = 0
    skipped: NonNegativeInt = 0
    tokens: NonNegativeInt = 0
    loss: float = 0.0
    nll: float = 0.0
    grad_norm: NonNegativeFloat = 0.0
    seconds: NonNegativeFloat = 0.0
    timed: NonNegativeInt = 0

    def add(self, step: Step) -> "Window":
        """The sums with one more update."""
        counted = replace(
            self,
            updates=self.updates + 1,
            skipped=self.skipped + step.skipped,
            tokens=self.tokens + step.tokens,
            seconds=self.seconds + step.seconds,
            timed=self.timed + step.tokens,
        )
        if step.skipped:
            return counted
        return replace(
            counted,
            loss=self.loss + step.loss,
            nll=self.nll + step.nll,
            grad_norm=self.grad_norm + step.grad_norm,
        )

    def to_dict(self) -> dict[str, Any]:
        """What a checkpoint saves: no times, so that equal trainings have equal files."""
        return {k: v for k, v in vars(self).items() if k not in ("seconds", "timed")}

    def record(self, last: Step) -> dict[str, Any]:
        """The record of these updates: means over those that were not skipped."""
        n = (self.updates - self.skipped) or math.nan  # if all were skipped, there is no mean
        return {
            "kind": "train",
            "step": last.number,
            "epoch": last.epoch,
            "loss": self.loss / n,
            "perplexity": math.exp(min(self.nll / n, 50.0)),
            "lr": last.lr,
            "grad_norm": self.grad_norm / n,
            "tokens": self.tokens,
            "tokens_per_second": self.timed / max(self.seconds, 1e-9),
            "skipped": self.skipped,
        }
