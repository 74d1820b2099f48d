"""What the cost model of docs/scaling.md says of the paper's runs on eight GPUs.

python benchmarks/predict.py        a table in Markdown, nothing is measured
"""

from dataclasses import dataclass, field
from pathlib import Path

from costmodel import Link, Size, work_of

from kutta.config import Config

CONFIGS = Path(__file__).parent.parent / "configs"
LENGTH = 28  # tokens of a typical sentence of WMT14
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
        length=LENGTH,
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


PASSES = 30  # how often a kept byte passes, as read off here (docs/scaling.md)
MEMORY = 1.4  # what is held at the peak over what is kept, as read off here


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
