"""The arithmetic of a training: autocast, TF32, and the loss scale that fp16 needs."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from kutta.config import TrainConfig

_LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}
_GROW_AFTER = 2000  # finite updates in a row
_LARGEST, _SMALLEST = 2.0**24, 2.0**-14


def autocast(device: torch.device, config: TrainConfig) -> AbstractContextManager[object]:
    """The arithmetic of the forward pass: matrix products in 16 bits, where it was asked for."""
    low = _LOW.get(config.precision)
    # The cache of casts belongs to all threads: a lane that ends would empty that of the others.
    cached = device.type != "cpu"
    return nullcontext() if low is None else torch.autocast(device.type, low, cache_enabled=cached)


def set_matrix_products(config: TrainConfig) -> None:
    """fp32 products as they are, or on tensor cores with TF32's ten bits of mantissa."""
    torch.set_float32_matmul_precision("high" if config.precision == "tf32" else "highest")


@dataclass
class LossScale:
    """The factor on the loss that keeps fp16 gradients from vanishing; 1 in any other precision.

    It is halved after an update whose gradients were not finite and doubled after many that were.
    What is finite is decided by the norm of all gradients, so that all processes decide alike.
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
        """Take note of whether the gradients of an update were finite."""
        if not self.dynamic:
            return
        self.steady = self.steady + 1 if finite else 0
        if not finite:
            self.value = max(self.value / 2, _SMALLEST)
        elif self.steady == _GROW_AFTER:
            self.value, self.steady = min(self.value * 2, _LARGEST), 0
