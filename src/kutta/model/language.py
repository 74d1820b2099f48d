"""The language model: a decoder without a source."""

from torch import Tensor

from kutta.model.decoding import DecoderState, Embedding, OutputLayer, TextModel
from kutta.model.initialise import initialise
from kutta.model.stack import Stack, StackShape


class LanguageModel(TextModel):
    """Pre-norm decoder-only Transformer whose blocks are steps of an ODE solver.

    The output layer has a matrix of its own, or with `tied` that of the embedding.
    """

    def __init__(
        self, shape: StackShape, vocabulary: int, tied: bool = False, pad: int = 0
    ) -> None:
        super().__init__()
        self.pad = pad
        self.target_embedding = Embedding(vocabulary, shape.d_model, pad, shape.dropout)
        self.decoder = Stack(shape)
        self.output = None if tied else OutputLayer(vocabulary, shape.d_model)
        initialise(self)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """ids (B, T) -> hidden states (T, B, d); there is no source, so it is (B, 0) or ignored."""
        return self.decoder(self.target_embedding(target_in), self.causal(target_in))

    def start(self, rows: int) -> DecoderState:
        """The state before the first position of `rows` texts."""
        return DecoderState([layer.start(rows, None) for layer in self.decoder.each_layer()])
