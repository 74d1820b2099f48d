"""What a training step costs on paper: operations, bytes and traffic; docs/scaling.md explains.

python benchmarks/costmodel.py      the paper's runs on eight GPUs as a table; nothing is measured
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kutta.config import Config, ModelConfig
from kutta.model.arithmetic import cost_of
from kutta.model.stack import Layer, Stack
from kutta.model.transformer import build_model

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
    mask: int = 4  # bytes kept for an element with dropout: its factor, or on a GPU one bool

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


CONFIGS = Path(__file__).parent.parent / "configs"
WMT_LENGTH = 28  # tokens of a typical sentence of WMT14
RUNS = (
    ("wmt14-en-de-base", "euler"),
    ("wmt14-en-de-base", "rk2"),
    ("wmt14-en-de-base", "rk4"),
    ("wmt14-en-de-deep-24", "euler"),
    ("wmt14-en-de-deep-24", "rk2"),
    ("wmt14-en-de-big", "euler"),
    ("wmt14-en-de-big", "rk2"),
    ("wmt14-en-de-big", "rk4"),
    ("wmt14-en-fr-base", "euler"),
    ("wmt14-en-fr-base", "rk2"),
    ("wmt14-en-fr-base", "rk4"),
    ("wmt14-en-fr-big", "rk2"),
    ("wmt16-en-ro-base", "euler"),
    ("wmt16-en-ro-base", "rk2"),
)
PASSES = 30  # how often a kept byte passes, as read off here (docs/scaling.md)
MEMORY = 1.4  # what is held at the peak over what is kept, as read off here


@dataclass(frozen=True)
class Gpu:
    """A card as its sheet describes it, and the share of its products that training reaches."""

    flops: float = 125e12  # fp16 with fp32 sums
    share: float = 0.35
    moved: float = 900e9  # bytes a second from its memory
    link: Link = field(default_factory=lambda: Link(20e9, 20e-6))


def predict(preset: str, solver: str, gpu: Gpu, world: int = 8) -> list[str]:
    """A row: preset, method, hours, and where they go, and memory of a card."""
    config = Config.load(CONFIGS / f"{preset}.toml", [f"model.solver={solver}"])
    model, train = config.model, config.train
    size = Size(
        model.d_model,
        model.ffn,
        model.heads,
        model.encoder_layers,
        model.decoder_layers,
        solver,
        tokens=train.batch_tokens,
        vocabulary=config.data.vocab_size,
        shared=config.data.shared_vocab,
        length=WMT_LENGTH,
        mask=2,  # one, when activations are halved below
    )
    work = work_of(size)
    batches = train.accumulate / world  # of each card, one after another
    products = batches * work.flop / (gpu.flops * gpu.share)
    halved = batches * PASSES * work.passing / 2  # activations in 16 bits; Adam stays in 32
    passes = (halved + work.adam) / gpu.moved
    exchange = gpu.link.all_reduce(work.exchanged, world)
    update = products + passes + exchange
    return [
        preset,
        solver,
        f"{work.flop * train.accumulate / 1e12:,.0f}",
        f"{1e3 * products:,.0f}",
        f"{1e3 * passes:,.0f}",
        f"{1e3 * exchange:,.0f}",
        f"{train.max_steps * update / 3600:,.1f}",
        f"{(work.states + MEMORY * work.kept / 2) / 1e9:,.1f}",
    ]


def table() -> str:
    """All runs, in Markdown."""
    head = ["preset", "method", "TFLOP", "products ms", "passes ms", "exchange ms", "hours", "GB"]
    rows = [head, *(predict(preset, solver, Gpu()) for preset, solver in RUNS)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---|---|" + "---:|" * (len(head) - 2), *lines[1:]])


def main() -> None:
    print(table())


if __name__ == "__main__":
    main()
