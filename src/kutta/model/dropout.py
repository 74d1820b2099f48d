"""Dropout, with a random generator that does not dominate training on a CPU.

The stock CPU kernel draws one Bernoulli variable per element and costs as much as a matrix
product. Here one 64-bit draw serves four elements: sixteen bits each, compared with p * 2^16.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

_LEVELS = 1 << 16


class Dropout(nn.Module):
    """Zero each element with probability p and scale the rest by 1 / (1 - p), while training."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return functional.dropout(x, self.p)
        return x * _noise(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def _noise(x: Tensor, p: float) -> Tensor:
    """A tensor like x: 0 with probability p (to within 2^-17), else 1 / (1 - p)."""
    dropped = round(p * _LEVELS)
    if dropped >= _LEVELS:
        return torch.zeros_like(x)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
    keep = bits >= dropped - _LEVELS // 2
    return keep.to(x.dtype).mul_(_LEVELS / (_LEVELS - dropped))
