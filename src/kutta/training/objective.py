"""The training objective: label-smoothed cross-entropy that never holds all logits in memory.

The output layer is the largest product of a small model, and its logits (N x V) the largest
tensor. Rows are processed in chunks, and each chunk's gradient is computed while its logits are
still in the cache. The memory saved for the backward pass is that of the hidden states and the
output matrix.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

_CHUNK_ELEMENTS = 1 << 23  # logits held at once: 32 MiB in fp32
_ALIGNED = 32  # numbers: rows of logits begin at multiples of 64 bytes, which products write faster


@dataclass(frozen=True)
class TokenLoss:
    """Sums over target tokens: `smoothed` is minimised, `nll` gives the perplexity."""

    smoothed: Tensor
    nll: Tensor


def token_loss(
    hidden: Tensor, weight: Tensor, targets: Tensor, pad: int, smoothing: float
) -> TokenLoss:
    """Loss of hidden (T, B, d) under the output matrix (V, d) against target ids (B, T).

    q = (1 - eps) onehot(target) + eps / V;  smoothed = -sum q log p,  nll = -sum log p[target],
    both summed over the tokens that are not padding.
    """
    flat = targets.t().reshape(-1)
    rows = (flat != pad).nonzero().squeeze(1)
    states = hidden.reshape(-1, hidden.shape[-1])
    if len(rows) < len(flat):
        states, flat = states.index_select(0, rows), flat.index_select(0, rows)
    device = states.device.type
    if torch.is_autocast_enabled(device):
        states = states.to(torch.get_autocast_dtype(device))
    if not torch.is_grad_enabled():  # validation: skip the gradient, which costs two more products
        states, weight = states.detach(), weight.detach()
    apply = cast(Any, _SmoothedCrossEntropy).apply  # has no types
    return TokenLoss(*apply(states, weight, flat, smoothing))


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Output layer, softmax and smoothed cross-entropy in one, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """hidden (N, d), weight (V, d), targets (N,) -> two sums in fp32 or wider."""
        N, V = hidden.shape[0], weight.shape[0]
        matrix = weight.to(hidden.dtype)
        wide = torch.promote_types(hidden.dtype, torch.float32)
        # h @ column is the sum of a row of logits.
        column = weight.sum(0, dtype=wide)[:, None] if smoothing else None
        with_gradient = hidden.requires_grad or weight.requires_grad
        grad_hidden = torch.empty_like(hidden) if with_gradient else None
        grad_weight: Tensor | None = None
        smoothed = hidden.new_zeros((), dtype=wide)
        nll = hidden.new_zeros((), dtype=wide)
        chunks = -(-N // max(1, _CHUNK_ELEMENTS // V))  # as few as possible, of equal size
        chunk = max(1, -(-N // max(1, chunks)))
        buffer = hidden.new_empty((chunk, -(-V // _ALIGNED) * _ALIGNED))[:, :V]
        for start in range(0, N, chunk):
            h = hidden[start : start + chunk]
            target = targets[start : start + chunk, None]
            logits = torch.mm(h, matrix.t(), out=buffer[: len(h)]).to(wide)
            peak = logits.amax(1, keepdim=True)
            at_target = logits.gather(1, target)
            p = logits.sub_(peak).exp_()  # times its mass
            mass = p.sum(1, keepdim=True)
            log_mass = mass.log() + peak
            chunk_nll = log_mass - at_target
            nll += chunk_nll.sum()
            chunk_smoothed = chunk_nll
            if column is not None:
                uniform = log_mass - h.to(wide) @ column / V
                chunk_smoothed = (1 - smoothing) * chunk_nll + smoothing * uniform
            smoothed += chunk_smoothed.sum()
            if grad_hidden is not None:
                # d loss / d logits = p - q = p - (1 - eps) onehot - eps / V, times mass and, until
                # all chunks are done, without its last term: both are cheaper on the smaller sides.
                gradient = p.scatter_add_(1, target, (smoothing - 1) * mass)
                if gradient.dtype != hidden.dtype:  # sixteen bits may not hold a mass of thousands
                    gradient, mass = gradient.div_(mass).to(hidden.dtype), torch.ones_like(mass)
                torch.mm(gradient, matrix, out=grad_hidden[start : start + chunk]).div_(mass)
                h = h / mass if gradient.dtype == weight.dtype else h
                if grad_weight is None:  # most often there is one chunk
                    grad_weight = torch.mm(gradient.t(), h).to(weight.dtype)
                elif gradient.dtype == weight.dtype:
                    grad_weight.addmm_(gradient.t(), h)
                else:
                    grad_weight += torch.mm(gradient.t(), h)
        if grad_hidden is not None:
            grad_weight = torch.zeros_like(weight) if grad_weight is None else grad_weight
            if column is not None:
                grad_hidden -= column.squeeze(1) * (smoothing / V)
                grad_weight -= hidden.sum(0, dtype=wide) * (smoothing / V)
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grad_outputs[0]  # that of `smoothed`; nll has no gradient
        return (grad_hidden * scale).to(grad_hidden.dtype), grad_weight * scale, None, None
