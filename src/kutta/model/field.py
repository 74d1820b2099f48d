"""The vector field F of dy/dt = F(y, theta(t)): what a block integrates.

F is always the increment, never the layer's output: F(y) = SAN(LN(y)) and so on, with LayerNorm
and dropout inside, so that every stage of a method norms its own argument and redraws dropout.
`inner` is the sublayer without the norm, for post-norm layers, which apply it after the addition,
and `output` names the linear layer it ends in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from kutta.model.attention import CrossAttention, KeyValues, SelfAttention
from kutta.model.dropout import Dropout, ReluDropout
from kutta.model.norm import make_norm
from kutta.model.shape import StackShape


@dataclass(frozen=True)
class Context:
    """What a field sees besides y; the same for every stage of a block.

    bias (T or 1, 1 or B*H, S) and offsets (T, S) belong to self-attention, memory (this layer's
    projected encoder states) and memory_bias (1, B*H, S) to cross-attention.
    """

    bias: Tensor | None = None
    offsets: Tensor | None = None
    memory: KeyValues | None = None
    memory_bias: Tensor | None = None


class SelfAttentionField(nn.Module):
    """F(y) = SAN(LN(y))."""

    output = "attention.out"

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.norm = make_norm(shape)
        sizes = shape.d_model, shape.heads, shape.clip
        self.attention = SelfAttention(*sizes, shape.attention_dropout)
        self.dropout = Dropout(shape.dropout)

    def forward(self, y: Tensor, context: Context, cache: KeyValues | None = None) -> Tensor:
        """y (T, B, d) -> dy (T, B, d)."""
        return self.inner(self.norm(y), context, cache)

    def inner(self, x: Tensor, context: Context, cache: KeyValues | None = None) -> Tensor:
        """SAN(x), x (T, B, d)."""
        return self.dropout(self.attention(x, context.bias, context.offsets, cache))


class CrossAttentionField(nn.Module):
    """F(y) = CrossAttention(LN(y), memory)."""

    output = "attention.out"

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.norm = make_norm(shape)
        sizes = shape.d_model, shape.heads
        self.attention = CrossAttention(*sizes, shape.attention_dropout)
        self.dropout = Dropout(shape.dropout)

    def forward(self, y: Tensor, context: Context, cache: KeyValues | None = None) -> Tensor:
        """y (T, B, d) -> dy (T, B, d)."""
        return self.inner(self.norm(y), context, cache)

    def inner(self, x: Tensor, context: Context, cache: KeyValues | None = None) -> Tensor:
        """CrossAttention(x, memory), x (T, B, d)."""
        assert context.memory is not None, "cross-attention needs the encoder's states"
        return self.dropout(self.attention(x, context.memory, context.memory_bias))


class FeedForwardField(nn.Module):
    """F(y) = W2 relu(W1 LN(y))."""

    output = "down"

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.norm = make_norm(shape)
        self.up = nn.Linear(shape.d_model, shape.ffn)
        self.down = nn.Linear(shape.ffn, shape.d_model)
        self.relu_dropout = ReluDropout(shape.relu_dropout)
        self.dropout = Dropout(shape.dropout)

    def forward(self, y: Tensor, context: Context, cache: KeyValues | None = None) -> Tensor:
        """y (T, B, d) -> dy (T, B, d)."""
        return self.inner(self.norm(y), context, cache)

    def inner(self, x: Tensor, context: Context, cache: KeyValues | None = None) -> Tensor:
        """W2 relu(W1 x), x (T, B, d)."""
        return self.dropout(self.down(self.relu_dropout(self.up(x))))


Sublayer = SelfAttentionField | CrossAttentionField | FeedForwardField
SUBLAYERS: dict[str, Callable[[StackShape], Sublayer]] = {  # by the names in Block.parts
    "ffn_before": FeedForwardField,
    "san": SelfAttentionField,
    "cross": CrossAttentionField,
    "ffn": FeedForwardField,
}
Part = Callable[[Tensor, Context, KeyValues | None], Tensor]  # a Sublayer, or its `inner`


def compose(
    sublayers: Sequence[Part], y: Tensor, context: Context, cache: KeyValues | None
) -> Tensor:
    """The increment of sublayers in sequence: u = F1(y); F(y) = u + F2(y + u); and so on."""
    first, *rest = sublayers
    total = first(y, context, cache)
    for sublayer in rest:
        total = total + sublayer(y + total, context, cache)
    return total
