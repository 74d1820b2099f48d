"""The models around the stacks: a translation model, and a language model without a source."""

import math
from dataclasses import dataclass

from torch import Tensor

from kutta.config import ModelConfig
from kutta.model.attention import relative_offsets
from kutta.model.decoding import DecoderState, Embedding, OutputLayer, TextModel, over_heads
from kutta.model.field import Context
from kutta.model.initialise import initialise
from kutta.model.shape import StackShape
from kutta.model.stack import Stack


@dataclass
class Memory:
    """The encoder's view of a batch: states (S, B, d); bias (1, B, S), -inf at padding."""

    states: Tensor
    bias: Tensor | None


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
    ) -> None:
        super().__init__()
        d, dropout = encoder.settings.d_model, encoder.settings.dropout
        self.target_embedding = Embedding(target_vocabulary, d, self.pad, dropout)
        self.source_embedding = self.target_embedding
        if not shared:
            self.source_embedding = Embedding(source_vocabulary, d, self.pad, dropout)
        self.encoder = Stack(encoder)
        self.decoder = Stack(decoder)
        self.output = None if tied else OutputLayer(target_vocabulary, d)
        initialise(self)

    def encode(self, source: Tensor) -> Memory:
        """source ids (B, S) -> Memory."""
        S, settings = source.shape[1], self.encoder.shape.settings
        padding, bias = source == self.pad, None
        if padding.any():
            bias = self.output_weight.new_zeros(source.shape).masked_fill(padding, -math.inf)[None]
        context = Context(
            bias=over_heads(bias, settings.heads, S),
            offsets=relative_offsets(S, S, settings.relative_positions, source.device),
        )
        return Memory(self.encoder(self.source_embedding(source), context), bias)

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


class LanguageModel(TextModel):
    """Pre-norm decoder-only Transformer whose blocks are steps of an ODE solver.

    The output layer has a matrix of its own, or with `tied` that of the embedding.
    """

    def __init__(self, shape: StackShape, vocabulary: int, tied: bool = False) -> None:
        super().__init__()
        d, dropout = shape.settings.d_model, shape.settings.dropout
        self.target_embedding = Embedding(vocabulary, d, self.pad, dropout)
        self.decoder = Stack(shape)
        self.output = None if tied else OutputLayer(vocabulary, d)
        initialise(self)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """ids (B, T) -> hidden states (T, B, d); there is no source, so it is (B, 0) or ignored."""
        return self.decoder(self.target_embedding(target_in), self.causal(target_in))

    def start(self, rows: int) -> DecoderState:
        """The state before the first position of `rows` texts."""
        return DecoderState([layer.start(rows, None) for layer in self.decoder.each_layer()])


def build_model(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int, shared: bool
) -> TextModel:
    """A freshly initialised model of these settings: without an encoder, a language model."""
    main = config.solver, config.gamma
    if config.encoder_layers == 0:
        shape = StackShape(config, config.decoder_layers, *main)
        return LanguageModel(shape, target_vocabulary, config.tie_embeddings)
    encoder = StackShape(config, config.encoder_layers, *main)
    other = config.decoder_solver, config.decoder_gamma
    decoder = StackShape(config, config.decoder_layers, *other, cross=True)
    sizes = source_vocabulary, target_vocabulary
    return TranslationModel(encoder, decoder, *sizes, shared, config.tie_embeddings)
