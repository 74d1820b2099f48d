"""The vector field F of dy/dt = F(y, theta(t)): what a block integrates.

F is always the increment, never the layer's output: F(y) = SAN(LN(y)) and so on, with LayerNorm
and dropout inside, so that every stage of a method norms its own argument and redraws dropout.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from kutta.model.attention import CrossAttention, KeyValues, SelfAttention
from kutta.model.dropout import Dropout, ReluDropout
from kutta.model.linear import Linear
from kutta.model.shape import StackShape


@dataclass(frozen=True)
class Context:
    """What a field sees besides y; the same for every stage of a block.

    bias (T or 1, 1 or B*H, S) and offsets (T, S) belong to self-attention, memory (this layer's
    projected encoder states) and memory_bias (1, B*H, S) to cross-attention. In a search, what is
    attended to are Slots: both biases are (B, 1, 1 or K, S), and offsets (B, clip+1, S) one-hot.
    """

    bias: Tensor | None = None
    offsets: Tensor | None = None
    memory: KeyValues | None = None
    memory_bias: Tensor | None = None


def make_norm(shape: StackShape) -> nn.Module:
    """LayerNorm over the last dimension of states (T, B, d)."""
    return nn.LayerNorm(shape.settings.d_model, eps=1e-5)


class Sublayer(nn.Module, ABC):
    """F(y) = inner(LN(y)); a post-norm layer applies LN to the sum instead, so F(y) = inner(y)."""

    output = "attention.out"  # the linear layer it ends in

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.norm = make_norm(shape)
        self.dropout = Dropout(shape.settings.dropout)
        self.post_norm = shape.settings.norm == "post"

    def forward(self, y: Tensor, context: Context, cache: KeyValues | None = None) -> Tensor:
        """y (T, B, d) -> dy (T, B, d)."""
        return self.inner(y if self.post_norm else self.norm(y), context, cache)

    @abstractmethod
    def inner(self, x: Tensor, context: Context, cache: KeyValues | None = None) -> Tensor:
        """The sublayer without its norm: x (T, B, d) -> (T, B, d)."""


class SelfAttentionField(Sublayer):
    """F(y) = SAN(LN(y))."""

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        of = shape.settings
        sizes = of.d_model, of.heads, of.relative_positions
        self.attention = SelfAttention(*sizes, of.attention_dropout)

    def inner(self, x: Tensor, context: Context, cache: KeyValues | None = None) -> Tensor:
        return self.dropout(self.attention(x, context.bias, context.offsets, cache))


class CrossAttentionField(Sublayer):
    """F(y) = CrossAttention(LN(y), memory)."""

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        of = shape.settings
        self.attention = CrossAttention(of.d_model, of.heads, of.attention_dropout)

    def inner(self, x: Tensor, context: Context, cache: KeyValues | None = None) -> Tensor:
        assert context.memory is not None, "cross-attention needs the encoder's states"
        return self.dropout(self.attention(x, context.memory, context.memory_bias))


class FeedForwardField(Sublayer):
    """F(y) = W2 relu(W1 LN(y))."""

    output = "down"

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.up = Linear(shape.settings.d_model, shape.settings.ffn)
        self.down = Linear(shape.settings.ffn, shape.settings.d_model)
        self.relu_dropout = ReluDropout(shape.settings.relu_dropout)

    def inner(self, x: Tensor, context: Context, cache: KeyValues | None = None) -> Tensor:
        return self.dropout(self.down(self.relu_dropout(self.up(x))))


SUBLAYERS: dict[str, type[Sublayer]] = {  # by the names in Block.parts
    "ffn_before": FeedForwardField,
    "san": SelfAttentionField,
    "cross": CrossAttentionField,
    "ffn": FeedForwardField,
}
