"""Precision of training: autocast, TF32, and the loss scale for fp16."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from kutta.config import TrainConfig

_LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}
_GROW_AFTER = 2000  # finite updates in a row
_LARGEST, _SMALLEST = 2.0**24, 2.0**-14


def autocast(device: torch.device, config: TrainConfig) -> AbstractContextManager[object]:
    """The context of the forward pass: matrix products in 16 bits if the config says so."""
    low = _LOW.get(config.precision)
    # The cache of casts is shared by all threads: a lane that exits would clear it for the others.
    cached = device.type != "cpu"
    return nullcontext() if low is None else torch.autocast(device.type, low, cache_enabled=cached)


@dataclass
class LossScale:
    """The factor on the loss that keeps fp16 gradients from vanishing; 1 in any other precision.

    It is halved after an update with non-finite gradients and doubled after many finite ones. The
    norm of all gradients decides, so that all ranks agree.
    """

    value: float = 1.0
    steady: int = 0
    dynamic: bool = False

    @classmethod
    def of(cls, config: TrainConfig) -> "LossScale":
        fp16 = config.precision == "fp16"
        return cls(2.0**16 if fp16 else 1.0, dynamic=fp16)

    def remove_from(self, gradients: list[Tensor]) -> None:
        """Divide gradients by the scale, in place."""
        if self.value != 1.0:
            for gradient in gradients:
                gradient.mul_(1.0 / self.value)

    def update(self, finite: bool) -> None:
        """Update the scale after an update whose gradients were finite or not."""
        if not self.dynamic:
            return
        self.steady = self.steady + 1 if finite else 0
        if not finite:
            self.value = max(self.value / 2, _SMALLEST)
        elif self.steady == _GROW_AFTER:
            self.value, self.steady = min(self.value * 2, _LARGEST), 0
