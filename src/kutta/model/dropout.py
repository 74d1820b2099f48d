"""Dropout, with a random generator that does not dominate training on a CPU.

The stock CPU kernel draws one Bernoulli variable per element and costs as much as a matrix
product. Here one 64-bit draw serves four elements: sixteen bits each, compared with p * 2^16.
The factors are kept for the backward pass; after a relu, the output itself tells them.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

_LEVELS = 1 << 16


class Dropout(nn.Dropout):
    """Zero each element with probability p and scale the rest by 1 / (1 - p), while training.

    Numbers come from `generator`, or else from torch's own. (A GPU has one of its own.)
    """

    generator: torch.Generator | None = None

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return input
        if _stock(input):
            return functional.dropout(input, self.p)
        keep, scale = _keep(input, self.p, self.generator)
        # One product, unless the scale would be rounded to sixteen bits with the factors.
        return input * keep * scale if input.dtype.itemsize == 2 else input * keep.mul_(scale)


class ReluDropout(Dropout):
    """dropout(relu(x))."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 0.0 or _stock(input):
            return super().forward(torch.relu(input))
        # torch declares no types for apply
        return cast(Any, _DropRelu).apply(input, self.p, self.generator)


class _DropRelu(torch.autograd.Function):
    """relu(x) * keep / (1 - p): positive just where the gradient passes, so that no mask is kept.

    The next layer keeps this output for its own gradient anyway.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
        keep, ctx.scale = _keep(x, p, generator)
        out = torch.relu(x).mul_(keep).mul_(ctx.scale)  # the scale in full precision
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, None, None]:
        (out,) = ctx.saved_tensors
        passed = torch.ops.aten.threshold_backward(grad_outputs[0], out, 0)
        return cast(Tensor, passed).mul_(ctx.scale), None, None


def _stock(x: Tensor) -> bool:
    """Whether the stock dropout is the better one: on a GPU, or fused by the compiler."""
    return x.device.type != "cpu" or torch.compiler.is_compiling()


def _keep(x: Tensor, p: float, generator: torch.Generator | None) -> tuple[Tensor, float]:
    """A tensor like x, 0 with probability p (to within 2^-17) and else 1; and 1 / (1 - p)."""
    dropped = round(p * _LEVELS)
    if dropped >= _LEVELS:
        return torch.zeros_like(x), 1.0
    count = x.numel()
    draws = torch.empty((count + 3) // 4, dtype=torch.int64)
    draws.random_(-(2**63), None, generator=generator)
    bits = draws.view(torch.int16)[:count].view(x.shape)
    # Written as a number at once: a tensor of truth values is many times slower to turn into one.
    keep = torch.ge(bits, dropped - _LEVELS // 2, out=torch.empty(x.shape, dtype=x.dtype))
    return keep, _LEVELS / (_LEVELS - dropped)
