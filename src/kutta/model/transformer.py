"""The translation model around the stacks: embeddings, encoder, decoder, output layer."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from kutta.model.attention import SelfAttention, relative_offsets
from kutta.model.dropout import Dropout
from kutta.model.field import Context
from kutta.model.stack import LayerState, Stack, StackShape


@dataclass
class Memory:
    """The encoder's view of a batch: states (S, B, d); bias (1, B, S), -inf at padding."""

    states: Tensor
    bias: Tensor | None

    def select(self, rows: Tensor) -> "Memory":
        """The memory of these rows (B',), which may repeat."""
        bias = None if self.bias is None else self.bias.index_select(1, rows)
        return Memory(self.states.index_select(1, rows), bias)


@dataclass
class DecoderState:
    """Everything decoding carries from one position to the next, for B rows."""

    layers: list[LayerState]
    memory_bias: Tensor | None
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


def sinusoids(start: int, count: int, width: int, device: torch.device) -> Tensor:
    """Sine and cosine positions start..start+count-1, (count, width): sines first."""
    half = width // 2
    rates = torch.exp(torch.arange(half, device=device) * (-math.log(10000.0) / max(half - 1, 1)))
    angles = torch.arange(start, start + count, device=device)[:, None] * rates[None, :]
    return functional.pad(torch.cat([angles.sin(), angles.cos()], dim=1), (0, width % 2))


class TranslationModel(nn.Module):
    """Pre-norm encoder-decoder Transformer whose blocks are steps of an ODE solver.

    `shared` uses one embedding for source, target and output layer; otherwise the target
    embedding is tied to the output layer and the source has its own.
    """

    def __init__(
        self,
        encoder: StackShape,
        decoder: StackShape,
        source_vocabulary: int,
        target_vocabulary: int,
        shared: bool,
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
        _initialise(self)

    @property
    def output_weight(self) -> Tensor:
        """The output layer's matrix (V, d), tied to the target embedding."""
        return self.target_embedding.tokens.weight

    def encode(self, source: Tensor) -> Memory:
        """source ids (B, S) -> Memory."""
        padding = source == self.pad
        bias = None
        if padding.any():
            bias = self.output_weight.new_zeros(padding.shape)
            bias = bias.masked_fill(padding, -math.inf)[None]
        y = self.source_embedding(source)
        T = source.shape[1]
        context = Context(
            bias=_over_heads(bias, self.encoder.shape.heads, T),
            offsets=self._offsets(self.encoder, T, T, source.device),
        )
        return Memory(self.encoder(y, context), bias)

    def decode(self, target_in: Tensor, memory: Memory) -> Tensor:
        """Teacher forcing: target_in (B, T) -> hidden states (T, B, d)."""
        T = target_in.shape[1]
        device = target_in.device
        future = self.output_weight.new_full((T, T), -math.inf).triu(1)[:, None]
        heads = self.decoder.shape.heads
        context = Context(
            bias=future.expand(T, target_in.shape[0] * heads, T),
            offsets=self._offsets(self.decoder, T, T, device),
            memory_bias=_over_heads(memory.bias, heads, T),
        )
        return self.decoder(self.target_embedding(target_in), context, memory=memory.states)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """ids (B, S), (B, T) -> hidden states (T, B, d) for the output layer."""
        return self.decode(target_in, self.encode(source))

    def project(self, hidden: Tensor) -> Tensor:
        """hidden (..., d) -> logits (..., V)."""
        return functional.linear(hidden, self.output_weight)

    def start(self, memory: Memory) -> DecoderState:
        """The decoding state before the first position."""
        rows = memory.states.shape[1]
        layers = [layer.start(rows, memory.states) for layer in self.decoder.each_layer()]
        return DecoderState(layers, memory.bias)

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Feed tokens (B,) at the next position; return logits (B, V) for the one after."""
        length = state.position + 1
        context = Context(
            offsets=self._offsets(self.decoder, 1, length, tokens.device),
            memory_bias=_over_heads(state.memory_bias, self.decoder.shape.heads, 1),
        )
        y = self.target_embedding(tokens[:, None], start=state.position)
        hidden = self.decoder(y, context, states=state.layers)
        state.position = length
        return self.project(hidden[0])

    @staticmethod
    def _offsets(stack: Stack, queries: int, keys: int, device: torch.device) -> Tensor | None:
        clip = stack.shape.clip
        return relative_offsets(queries, keys, clip, device) if clip else None


def _over_heads(bias: Tensor | None, heads: int, queries: int) -> Tensor | None:
    """Spread a bias (1, B, S) over heads and queries: (T, B*H, S), as attention reads it."""
    if bias is None:
        return None
    return bias.repeat_interleave(heads, dim=1).expand(queries, -1, -1)


def _initialise(model: nn.Module) -> None:
    """Embeddings N(0, d^-1/2); each projection Xavier-uniform with zero bias."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    for module in model.modules():
        fused = [child for name, child in module.named_children() if name in ("qkv", "kv")]
        for linear in fused:
            # Stored together for speed, but each of the projections is a matrix of its own.
            assert isinstance(linear, nn.Linear)
            bound = math.sqrt(6.0 / (2 * linear.in_features))
            nn.init.uniform_(linear.weight, -bound, bound)
        if isinstance(module, SelfAttention) and module.relative is not None:
            nn.init.xavier_uniform_(module.relative)
