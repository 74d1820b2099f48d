"""Attention by two matrix products against torch's fused kernel, on this machine's CPU.

    python benchmarks/attention.py --json benchmarks/results/attention.json --page

Both functions of `kutta.model.attention` compute the same, forward and backward, in turns. The
ratio of their times in each turn is taken, so that both see the same state of the machine.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from report import PAGE, between
from torch import Tensor

from kutta.model.attention import KeyValues, by_fused_kernel, by_products
from kutta.model.dropout import Dropout

PADDING = 0.1  # share of the keys that no query attends to


@dataclass(frozen=True)
class Shape:
    """What is computed: B sentences of T queries and S keys, H heads of width d_h."""

    name: str
    B: int
    T: int
    S: int
    H: int
    d_h: int
    relative: bool  # the bias has relative positions, and so a gradient
    trains: bool = True  # with dropout and a backward pass


def shapes() -> list[Shape]:
    """The micro-batches of Kutta's default on a CPU, and single steps of decoding."""
    found: list[Shape] = []
    for size, H, d_h, tokens in (("tiny", 4, 32, 1024), ("base", 8, 64, 512)):
        for T in (16, 32, 64):
            for kind in ("self", "cross"):
                name = f"{size}, {kind}, length {T}"
                found.append(Shape(name, tokens // T, T, T, H, d_h, kind == "self"))
        found.append(Shape(f"{size}, decoding step 32", 64, 1, 32, H, d_h, True, trains=False))
    return found


def work_of(shape: Shape) -> Callable[[Callable[..., Tensor]], list[Tensor]]:
    """Random inputs of a shape, and what is done with them: output and gradients."""
    generator = torch.Generator().manual_seed(1)

    def draw(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator).requires_grad_(shape.trains)

    q = draw(shape.T, shape.B, shape.H, shape.d_h)
    keys, values = (draw(shape.S, shape.B, shape.H, shape.d_h) for _ in range(2))
    bias = torch.zeros(1, shape.B * shape.H, shape.S)
    bias[..., shape.S - round(PADDING * shape.S) :] = -torch.inf
    if shape.relative:
        bias = draw(shape.T, shape.B * shape.H, shape.S).detach() + bias
        bias.requires_grad_(shape.trains)
    dropout = Dropout(0.1).train(shape.trains)
    inputs = [x for x in (q, keys, values, bias) if x.requires_grad]
    gradient = torch.ones(q.shape)

    def work(attend: Callable[..., Tensor]) -> list[Tensor]:
        with torch.set_grad_enabled(shape.trains):
            out = attend(q, KeyValues(keys, values), bias, dropout)
        return [out, *torch.autograd.grad(out, inputs, gradient)] if shape.trains else [out]

    return work


def measure(shape: Shape, turns: int, repeats: int) -> dict[str, Any]:
    """Medians over turns, in milliseconds, and the ratio of fused to products."""
    work = work_of(shape)

    def seconds(attend: Callable[..., Tensor]) -> float:
        started = time.perf_counter()
        for _ in range(repeats):
            work(attend)
        return (time.perf_counter() - started) / repeats

    both = (by_products, by_fused_kernel)
    pairs = [tuple(map(seconds, both)) for _ in range(1 + turns)][1:]  # the first is slower
    ratios = [fused / products for products, fused in pairs]
    low, _, high = quantiles(ratios, n=4)
    return {
        **asdict(shape),
        "products_ms": round(1e3 * median(products for products, _ in pairs), 3),
        "fused_ms": round(1e3 * median(fused for _, fused in pairs), 3),
        "ratio": round(median(ratios), 2),
        "quartiles": [round(low, 2), round(high, 2)],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = ["| shape | products ms | fused ms | fused / products | quartiles |"]
    lines += ["|---|---:|---:|---:|---:|"]
    for row in rows:
        numbers = [f"{row['products_ms']:.2f}", f"{row['fused_ms']:.2f}", f"{row['ratio']:.2f}"]
        numbers += [" to ".join(f"{quartile:.2f}" for quartile in row["quartiles"])]
        lines += [f"| {row['name']} | " + " | ".join(numbers) + " |"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare two ways to compute attention on a CPU.")
    parser.add_argument("--turns", type=int, default=55, help="turns of both, for each shape")
    parser.add_argument("--repeats", type=int, default=10, help="computations in a turn")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured")
    parser.add_argument("--page", action="store_true", help=f"also write the table to {PAGE.name}")
    chosen = parser.parse_args()
    if chosen.turns < 2:
        parser.error("--turns must be at least 2")
    torch.set_num_threads(chosen.threads)
    load = os.getloadavg()[0]
    rows = [measure(shape, chosen.turns, chosen.repeats) for shape in shapes()]
    print(table(rows))
    if chosen.json:
        settings = {"machine": platform.platform(), "torch": torch.__version__, "load": load}
        settings |= {k: getattr(chosen, k) for k in ("threads", "turns", "repeats")}
        content = json.dumps(settings | {"rows": rows}, indent=2)
        chosen.json.write_text(content + "\n", encoding="utf-8")
    if chosen.page:
        text = between(PAGE.read_text("utf-8"), "attention", table(rows))
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
