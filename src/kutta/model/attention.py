"""Multi-head attention with relative positions and a key/value cache.

Everything here is time first: states are (T, B, d). Heads then sit beside the batch without a
copy: (T, B, H, d_h) viewed as (T, B*H, d_h) is what a batched matrix product wants, transposed.
Projections that are computed together are stored together, interleaved by head, for that reason.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from kutta.model.dropout import Dropout


@dataclass
class KeyValues:
    """Keys and values seen so far, each (S, B, H, d_h); grows while decoding."""

    keys: Tensor
    values: Tensor

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Add the keys and values of further positions."""
        self.keys = torch.cat([self.keys, keys])
        self.values = torch.cat([self.values, values])

    def select(self, rows: Tensor) -> None:
        """Keep or reorder rows of the batch; rows (B',) may repeat."""
        self.keys = self.keys.index_select(1, rows)
        self.values = self.values.index_select(1, rows)


def relative_offsets(queries: int, keys: int, clip: int, device: torch.device) -> Tensor:
    """Row of the relative-position table for each (query, key): clip(j - i) + clip, (T, S).

    The queries are the last `queries` of the `keys` positions, as in cached decoding.
    """
    i = torch.arange(keys - queries, keys, device=device)
    j = torch.arange(keys, device=device)
    return (j[None, :] - i[:, None]).clamp(-clip, clip) + clip


def attend(
    q: Tensor, kv: KeyValues, bias: Tensor | None, relative: Tensor | None, dropout: Dropout
) -> Tensor:
    """softmax((q k + q r) / sqrt(d_h) + bias) v for every head.

    q (T, B, H, d_h); bias broadcasts to (T, B*H, S) and is 0 or -inf; relative (T, S, d_h) are
    the key-side position representations r_ij (Shaw et al., eq. 4). Returns (T, B, H*d_h).
    """
    T, B, H, width = q.shape
    S = kv.keys.shape[0]
    q = q.reshape(T, B * H, width)
    keys = kv.keys.reshape(S, B * H, width)
    values = kv.values.reshape(S, B * H, width)
    # Scaled within the products, which spares a copy of q.
    scale = width**-0.5
    start = q.new_zeros(()).expand(1, 1, 1) if bias is None else bias
    if relative is not None:
        # One product per query position over all heads: r_ij is shared by the heads.
        start = torch.baddbmm(start, q, relative.transpose(1, 2), alpha=scale)
    content = (q.transpose(0, 1), keys.permute(1, 2, 0))
    logits = torch.baddbmm(start.transpose(0, 1), *content, alpha=scale)
    weights = dropout(torch.softmax(logits, dim=-1))
    return torch.bmm(weights, values.transpose(0, 1)).transpose(0, 1).reshape(T, B, H * width)


class SelfAttention(nn.Module):
    """Multi-head self-attention; `clip` > 0 adds relative positions up to that distance."""

    def __init__(self, d_model: int, heads: int, clip: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.clip = clip
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.dropout = Dropout(dropout)
        width = d_model // heads
        self.relative = nn.Parameter(torch.zeros(2 * clip + 1, width)) if clip else None

    def forward(
        self, x: Tensor, bias: Tensor | None, offsets: Tensor | None, cache: KeyValues | None = None
    ) -> Tensor:
        """x (T, B, d) -> (T, B, d). With a cache, x are the newest positions only."""
        T, B, _ = x.shape
        q, k, v = self.qkv(x).view(T, B, self.heads, 3, -1).unbind(3)
        fresh = KeyValues(k, v)
        if cache is not None:
            cache.append(k, v)
            fresh = cache
        relative = None
        if self.relative is not None and offsets is not None:
            relative = functional.embedding(offsets, self.relative).to(q.dtype)
        return self.out(attend(q, fresh, bias, relative, self.dropout))

    def empty_cache(self, rows: int) -> KeyValues:
        """A cache of no positions for `rows` sentences."""
        width = self.out.in_features // self.heads
        nothing = self.out.weight.new_empty(0, rows, self.heads, width)
        return KeyValues(nothing, nothing)


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder over the encoder's states."""

    def __init__(self, d_model: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(d_model, d_model)
        self.kv = nn.Linear(d_model, 2 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.dropout = Dropout(dropout)

    def keys_values(self, memory: Tensor) -> KeyValues:
        """Project memory (S, B, d) once; every stage and every decoding step reuses it."""
        S, B, _ = memory.shape
        keys, values = self.kv(memory).view(S, B, self.heads, 2, -1).unbind(3)
        return KeyValues(keys, values)

    def forward(self, x: Tensor, memory: KeyValues, bias: Tensor | None) -> Tensor:
        """x (T, B, d) -> (T, B, d)."""
        T, B, _ = x.shape
        q = self.q(x).view(T, B, self.heads, -1)
        return self.out(attend(q, memory, bias, None, self.dropout))
