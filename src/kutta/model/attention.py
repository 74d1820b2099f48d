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
from kutta.model.linear import Linear


@dataclass
class KeyValues:
    """Keys and values seen so far, each (S, B, H, d_h); grows while decoding."""

    keys: Tensor
    values: Tensor

    def append(self, keys: Tensor, values: Tensor) -> "KeyValues":
        """Add the keys and values of further positions."""
        self.keys = torch.cat([self.keys, keys])
        self.values = torch.cat([self.values, values])
        return self

    def select(self, rows: Tensor) -> None:
        """Keep or reorder rows of the batch; rows (B',) may repeat."""
        self.keys = self.keys.index_select(1, rows)
        self.values = self.values.index_select(1, rows)


class Slots(KeyValues):
    """Keys and values (B, H, S, d_h) that all hypotheses of a sentence share while searching.

    Queries are (K, B, H, d_h) for K hypotheses, and a bias (B, 1 or H, 1 or K, S) says which slots
    each of them sees. So nothing is copied or reordered where hypotheses part.
    """

    def relative(self, bias: Tensor, q: Tensor, table: Tensor, offsets: Tensor) -> Tensor:
        """bias + q r / sqrt(d_h), r from the rows of a table for the offsets -clip..clip.

        offsets (B, clip+1, S) of hypotheses are one-hot. q r is computed for -clip..0 and then
        spread over the slots: a product with ones and zeros takes less time than gathering r for
        every slot of every sentence. Offsets (T, S) are as in training: rows of the table.
        """
        K, B, H, _ = q.shape
        if offsets.dim() == 2:
            relative = functional.embedding(offsets, table).to(q.dtype)
            products = torch.bmm(q.flatten(1, 2), relative.transpose(1, 2)) * _scale(q)
            return bias + products.view(K, B, H, -1).permute(1, 2, 0, 3)
        until_now = table[: offsets.shape[1]].to(q.dtype)
        by_offset = (q @ until_now.t() * _scale(q)).permute(1, 2, 0, 3).flatten(1, 2)
        return bias + torch.bmm(by_offset, offsets).view(B, H, K, -1)

    def attend(self, q: Tensor, bias: Tensor) -> Tensor:
        """softmax(q k / sqrt(d_h) + bias) v for every head: (K, B, H*d_h)."""
        K, B = q.shape[:2]
        query, keys, values = q.permute(1, 2, 0, 3), self.keys, self.values
        logits = torch.matmul(query * _scale(q), keys.transpose(2, 3)) + bias
        attended = torch.matmul(torch.softmax(logits, dim=-1), values)
        return attended.permute(2, 0, 1, 3).reshape(K, B, -1)


class Cache(Slots):
    """Slots of self-attention: a buffer that has room for those of further steps.

    keys and values are the buffer (capacity, B, H, d_h), of which the first `used` are filled.
    """

    def __init__(self, keys: Tensor, values: Tensor, used: int) -> None:
        super().__init__(keys, values)
        self.used = used

    def append(self, keys: Tensor, values: Tensor) -> Slots:
        """Fill the next slots; return all that are filled."""
        end = self.used + len(keys)
        self.keys[self.used : end], self.values[self.used : end] = keys, values
        self.used = end
        return Slots(*(x[:end].permute(1, 2, 0, 3) for x in (self.keys, self.values)))


def relative_offsets(queries: int, keys: int, clip: int, device: torch.device) -> Tensor | None:
    """Row of the relative-position table for each (query, key): clip(j - i) + clip, (T, S).

    The queries are the last `queries` of the `keys` positions, as in cached decoding. A clip of 0
    stands for no relative positions.
    """
    if clip == 0:
        return None
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
    # GPUs have fused kernels; on a CPU the products are faster, and dropout draws as elsewhere.
    by = by_products if q.device.type == "cpu" else by_fused_kernel
    if relative is not None:
        # bias + q r / sqrt(d_h), (T, B*H, S): one product per query, as the heads share r_ij.
        start = q.new_zeros(1, 1, 1) if bias is None else bias
        bias = torch.baddbmm(start, q.flatten(1, 2), relative.transpose(1, 2), alpha=_scale(q))
    return by(q, kv, bias, dropout).reshape(*q.shape[:2], -1)


def by_products(q: Tensor, kv: KeyValues, bias: Tensor | None, dropout: Dropout) -> Tensor:
    """softmax(q k / sqrt(d_h) + bias) v as two products, q as in `attend`: (T, B, H, d_h)."""
    keys, values = kv.keys.flatten(1, 2), kv.values.flatten(1, 2)
    start = (q.new_zeros(1, 1, 1) if bias is None else bias).transpose(0, 1)
    # Scaled within the product, which spares a copy of q.
    content = (q.flatten(1, 2).transpose(0, 1), keys.permute(1, 2, 0))
    logits = torch.baddbmm(start, *content, alpha=_scale(q))
    weights = dropout(torch.softmax(logits, dim=-1))
    return torch.bmm(weights, values.transpose(0, 1)).transpose(0, 1).view(q.shape)


def by_fused_kernel(q: Tensor, kv: KeyValues, bias: Tensor | None, dropout: Dropout) -> Tensor:
    """The same as `by_products`, by torch's kernels; dropout draws from the device's generator."""
    T, B, H, _ = q.shape
    query, keys, values = (x.permute(1, 2, 0, 3) for x in (q, kv.keys, kv.values))  # (B, H, T, d_h)
    S = keys.shape[2]
    if bias is not None:
        bias = bias.to(q.dtype).expand(T, B * H, S).view(T, B, H, S).permute(1, 2, 0, 3)
    p = dropout.p if dropout.training else 0.0
    attended = functional.scaled_dot_product_attention(query, keys, values, bias, p)
    return attended.permute(2, 0, 1, 3)


def _scale(q: Tensor) -> float:
    return q.shape[-1] ** -0.5


class SelfAttention(nn.Module):
    """Multi-head self-attention; `clip` > 0 adds relative positions up to that distance."""

    def __init__(self, d_model: int, heads: int, clip: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.clip = clip
        self.qkv = Linear(d_model, 3 * d_model)
        self.out = Linear(d_model, d_model)
        self.dropout = Dropout(dropout)
        width = d_model // heads
        self.relative = nn.Parameter(torch.zeros(2 * clip + 1, width)) if clip else None

    def forward(
        self, x: Tensor, bias: Tensor | None, offsets: Tensor | None, cache: KeyValues | None = None
    ) -> Tensor:
        """x (T, B, d) -> (T, B, d). With a cache, x are the newest positions only."""
        T, B, _ = x.shape
        q, k, v = self.qkv(x).view(T, B, self.heads, 3, -1).unbind(3)
        seen = KeyValues(k, v) if cache is None else cache.append(k, v)
        if isinstance(seen, Slots):
            assert bias is not None, "a search says which slots are seen"
            if self.relative is not None and offsets is not None:
                bias = seen.relative(bias, q, self.relative, offsets)
            return self.out(seen.attend(q, bias))
        relative = None
        if self.relative is not None and offsets is not None:
            relative = functional.embedding(offsets, self.relative).to(q.dtype)
        return self.out(attend(q, seen, bias, relative, self.dropout))

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
        self.q = Linear(d_model, d_model)
        self.kv = Linear(d_model, 2 * d_model)
        self.out = Linear(d_model, d_model)
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
        if isinstance(memory, Slots):
            assert bias is not None, "a search says which slots are seen"
            return self.out(memory.attend(q, bias))
        return self.out(attend(q, memory, bias, None, self.dropout))
