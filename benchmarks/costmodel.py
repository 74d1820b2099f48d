"""What a training step costs on paper: operations, bytes and traffic; docs/scaling.md explains."""

from dataclasses import dataclass
from typing import Any

import torch

from kutta.config import ModelConfig
from kutta.model.arithmetic import cost_of
from kutta.model.build import build_model
from kutta.model.stack import Layer, Stack

VOCABULARY = 9_712
LENGTH = 16  # tokens of every sentence, so that nothing is padding


@dataclass(frozen=True)
class Size:
    """A model and its micro-batch."""

    d: int
    ffn: int
    heads: int
    encoder: int
    decoder: int
    solver: str = "euler"
    tokens: int = 1024  # of each side
    recompute: bool = False
    vocabulary: int = VOCABULARY
    length: int = LENGTH
    shared: bool = True  # one vocabulary for both sides
    mask: int = 4  # bytes kept for an element that meets dropout: its factor, on a GPU one bool

    @property
    def name(self) -> str:
        recompute = ", recomputed" if self.recompute else ""
        return f"d {self.d}, {self.encoder}-{self.decoder}, {self.solver}, {self.tokens}{recompute}"

    def model(self) -> Any:
        config = ModelConfig(
            d_model=self.d,
            ffn=self.ffn,
            heads=self.heads,
            encoder_layers=self.encoder,
            decoder_layers=self.decoder,
            solver=self.solver,
        )
        return build_model(config, self.vocabulary, self.vocabulary, self.shared)


@dataclass(frozen=True)
class Work:
    """What one update of one micro-batch takes: operations, and bytes by kind."""

    flop: float  # of matrix products
    kept: float  # activations that the backward pass needs
    states: float  # weights, gradients, Adam's moments
    passing: float  # of kept activations and logits, each once: bytes that other operations touch
    adam: float  # bytes that Adam reads and writes, once an update
    exchanged: float  # gradient bytes, before they go over a network

    def seconds(self, flops: float, bytes_per_second: float, passes: float) -> float:
        """Of an update of one micro-batch, where a kept byte is read or written `passes` times."""
        return self.flop / flops + (passes * self.passing + self.adam) / bytes_per_second


def kept_per_token(layer: Layer, size: Size) -> float:
    """Bytes kept per token for all evaluations of a layer's blocks.

    Norm: its input and output. Attention: queries (scaled), keys, values, softmax before and after
    dropout, the heads' result. Feed-forward: the hidden units once. Each dropout: its mask.
    """
    d, weights = size.d, size.heads * size.length
    kept = 0.0
    for block, solver in layer.steps():
        for part in block.parts:
            if part == "ffn" or part == "ffn_before":
                numbers, masks = 2 * d + size.ffn, d
            elif part == "san":
                numbers, masks = 2 * d + 5 * d + 2 * weights, d + weights
            else:
                numbers, masks = 2 * d + 4 * d + 2 * weights, d + weights
            kept += solver.evaluations * (4 * numbers + size.mask * masks)
    return kept


def work_of(size: Size) -> Work:
    """The formulas of docs/scaling.md."""
    with torch.device("meta"):
        model = size.model()
    cost, n = cost_of(model), size.tokens
    linear = 6 * n * (cost.per_source_token + cost.per_target_token)
    activations = attention = boundary = largest = 0.0
    for stack in (child for child in model.children() if isinstance(child, Stack)):
        for layer in stack.each_layer():
            kept = kept_per_token(layer, size)
            activations += kept
            largest = max(largest, kept)
            boundary += 4 * size.d
            looks = sum(
                solver.evaluations * ((part == "san") * 3 + (part == "cross") * 2)
                for block, solver in layer.steps()
                for part in block.parts
            )
            attention += 6 * looks * size.d * size.length
    logits = 4 * size.vocabulary
    flop = linear + n * attention
    if size.recompute:
        flop *= 4 / 3
    return Work(
        flop=flop,
        kept=n * (boundary + largest if size.recompute else activations),
        states=16.0 * cost.parameters,
        passing=n * (activations + logits) * (4 / 3 if size.recompute else 1),
        adam=7 * 4.0 * cost.parameters,
        exchanged=4.0 * cost.parameters,
    )


@dataclass(frozen=True)
class Link:
    """A connection between processes: bytes a second each way, and seconds to begin."""

    bytes_per_second: float
    latency: float = 0.0

    def all_reduce(self, size: float, world: int) -> float:
        """Seconds to sum `size` bytes over a ring: every process sends 2 (w - 1) / w of them."""
        if world == 1:
            return 0.0
        moved = 2 * (world - 1) / world * size
        return moved / self.bytes_per_second + 2 * (world - 1) * self.latency
