"""The translation model around the stacks: embeddings, encoder, decoder, output layer."""

import math
from dataclasses import dataclass

from torch import Tensor

from kutta.model.decoding import (
    DecoderState,
    Embedding,
    OutputLayer,
    TextModel,
    offsets,
    over_heads,
)
from kutta.model.field import Context
from kutta.model.initialise import initialise
from kutta.model.stack import Stack, StackShape


@dataclass
class Memory:
    """The encoder's view of a batch: states (S, B, d); bias (1, B, S), -inf at padding."""

    states: Tensor
    bias: Tensor | None

    def select(self, rows: Tensor) -> "Memory":
        """The memory of these rows (B',), which may repeat."""
        bias = None if self.bias is None else self.bias.index_select(1, rows)
        return Memory(self.states.index_select(1, rows), bias)


class TranslationModel(TextModel):
    """Pre-norm encoder-decoder Transformer whose blocks are steps of an ODE solver.

    `shared` uses one embedding for source and target; otherwise the source has its own. `tied`
    makes the target embedding the output layer too; otherwise that has its own matrix.
    """

    def __init__(
        self,
        encoder: StackShape,
        decoder: StackShape,
        source_vocabulary: int,
        target_vocabulary: int,
        shared: bool,
        tied: bool = True,
        pad: int = 0,
    ) -> None:
        super().__init__()
        self.pad = pad
        d = encoder.d_model
        self.target_embedding = Embedding(target_vocabulary, d, pad, decoder.dropout)
        self.source_embedding = (
            self.target_embedding
            if shared
            else Embedding(source_vocabulary, d, pad, encoder.dropout)
        )
        self.encoder = Stack(encoder)
        self.decoder = Stack(decoder)
        self.output = None if tied else OutputLayer(target_vocabulary, d)
        initialise(self)

    def encode(self, source: Tensor) -> Memory:
        """source ids (B, S) -> Memory."""
        padding = source == self.pad
        bias = None
        if padding.any():
            bias = self.output_weight.new_zeros(padding.shape)
            bias = bias.masked_fill(padding, -math.inf)[None]
        y = self.source_embedding(source)
        S = source.shape[1]
        context = Context(
            bias=over_heads(bias, self.encoder.shape.heads, S),
            offsets=offsets(self.encoder, S, S, source.device),
        )
        return Memory(self.encoder(y, context), bias)

    def decode(self, target_in: Tensor, memory: Memory) -> Tensor:
        """Teacher forcing: target_in (B, T) -> hidden states (T, B, d)."""
        context = self.causal(target_in, memory.bias)
        return self.decoder(self.target_embedding(target_in), context, memory=memory.states)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """ids (B, S), (B, T) -> hidden states (T, B, d) for the output layer."""
        return self.decode(target_in, self.encode(source))

    def start(self, memory: Memory) -> DecoderState:
        """The decoding state before the first position."""
        rows = memory.states.shape[1]
        layers = [layer.start(rows, memory.states) for layer in self.decoder.each_layer()]
        return DecoderState(layers, memory.bias)
