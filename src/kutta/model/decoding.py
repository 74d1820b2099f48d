"""What writes text token by token, with or without a source: embedding, decoder, output layer."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from kutta.model.attention import relative_offsets
from kutta.model.dropout import Dropout
from kutta.model.field import Context
from kutta.model.linear import linear
from kutta.model.stack import LayerState, Stack


@dataclass
class DecoderState:
    """Everything decoding carries from one position to the next, for B rows."""

    layers: list[LayerState]
    memory_bias: Tensor | None = None
    position: int = 0

    def select(self, rows: Tensor, same_sentences: bool = False) -> None:
        """Keep or reorder rows (B',). `same_sentences`: each row still reads its own source."""
        for layer in self.layers:
            layer.select(rows, same_sentences)
        if self.memory_bias is not None and not same_sentences:
            self.memory_bias = self.memory_bias.index_select(1, rows)


class Embedding(nn.Module):
    """Scaled token embeddings plus sinusoidal positions; ids (B, T) -> (T, B, d)."""

    def __init__(self, vocabulary: int, d_model: int, pad: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, d_model, padding_idx=pad)
        self.scale = math.sqrt(d_model)
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """`start` is the position of the first column."""
        x = self.tokens(ids.t()) * self.scale
        positions = sinusoids(start, ids.shape[1], x.shape[-1], x.device).to(x.dtype)
        return self.dropout(x + positions[:, None])

    def at(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids (K, B), all of a column at that column's position (B,): (K, B, d), for a search."""
        x = self.tokens(ids) * self.scale
        return x + _waves(positions, x.shape[-1]).to(x.dtype)


def sinusoids(start: int, count: int, width: int, device: torch.device) -> Tensor:
    """Sine and cosine positions start..start+count-1, (count, width): sines first."""
    return _waves(torch.arange(start, start + count, device=device), width)


def _waves(positions: Tensor, width: int) -> Tensor:
    """positions (P,) -> (P, width)."""
    half = width // 2
    steps = torch.arange(half, device=positions.device)
    rates = torch.exp(steps * (-math.log(10000.0) / max(half - 1, 1)))
    angles = positions[:, None] * rates[None, :]
    return functional.pad(torch.cat([angles.sin(), angles.cos()], dim=1), (0, width % 2))


class OutputLayer(nn.Module):
    """The matrix (V, d) of an output layer that is not tied to the embedding; no bias."""

    def __init__(self, vocabulary: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, d_model))


class TextModel(nn.Module):
    """A model that gives the next token of a text: what training, search and sampling know of it.

    A kind of it sets `target_embedding`, `decoder` and `output`, in the order in which its
    parameters are to be drawn, and defines forward(source, target_in) -> hidden states (T, B, d).
    """

    pad = 0
    target_embedding: Embedding
    decoder: Stack
    output: OutputLayer | None  # None: tied to the target embedding

    @property
    def output_weight(self) -> Tensor:
        """The output layer's matrix (V, d)."""
        return (self.output or self.target_embedding.tokens).weight

    def project(self, hidden: Tensor) -> Tensor:
        """hidden (..., d) -> logits (..., V)."""
        return linear(hidden, self.output_weight)

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Feed tokens (B,) at the next position; return logits (B, V) for the one after."""
        length, settings = state.position + 1, self.decoder.shape.settings
        context = Context(
            offsets=relative_offsets(1, length, settings.relative_positions, tokens.device),
            memory_bias=over_heads(state.memory_bias, settings.heads, 1),
        )
        y = self.target_embedding(tokens[:, None], start=state.position)
        hidden = self.decoder(y, context, states=state.layers)
        state.position = length
        return self.project(hidden[0])

    def extend(
        self, tokens: Tensor, positions: Tensor, context: Context, layers: list[LayerState]
    ) -> Tensor:
        """Feed tokens (K, B) of K hypotheses for each of B sentences: hidden states (K, B, d).

        positions (B,) are theirs; the layers hold Slots, and the context says who sees which.
        """
        return self.decoder(self.target_embedding.at(tokens, positions), context, states=layers)

    def causal(self, target_in: Tensor, memory_bias: Tensor | None = None) -> Context:
        """The context of teacher forcing on target_in (B, T): no position sees a later one."""
        (B, T), settings = target_in.shape, self.decoder.shape.settings
        future = self.output_weight.new_full((T, T), -math.inf).triu(1)[:, None]
        return Context(
            bias=future.expand(T, B * settings.heads, T),
            offsets=relative_offsets(T, T, settings.relative_positions, target_in.device),
            memory_bias=over_heads(memory_bias, settings.heads, T),
        )


def over_heads(bias: Tensor | None, heads: int, queries: int) -> Tensor | None:
    """Spread a bias (1, B, S) over heads and queries: (T, B*H, S), as attention reads it."""
    if bias is None:
        return None
    return bias.repeat_interleave(heads, dim=1).expand(queries, -1, -1)
