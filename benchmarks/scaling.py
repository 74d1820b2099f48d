"""What a training step costs on paper, held against what it costs here; docs/scaling.md explains.

python benchmarks/scaling.py                    measure and compare
python benchmarks/scaling.py --json FILE        and keep the figures
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from costmodel import Link, Size, work_of
from rich.console import Console
from rich.table import Table
from trainee import memory_mb

from kutta.config import TrainConfig
from kutta.data.batches import Batch
from kutta.training.loop import fit, make_trainer

SIZES = (
    Size(128, 256, 4, 4, 4),
    Size(128, 256, 4, 4, 4, "rk4"),
    Size(256, 1024, 4, 3, 3),
    Size(256, 1024, 4, 6, 6),
    Size(256, 1024, 4, 6, 6, "rk2"),
    Size(512, 2048, 8, 6, 6, tokens=512),
    Size(512, 2048, 8, 6, 6),
    Size(512, 2048, 8, 6, 6, "rk2"),
    Size(512, 2048, 8, 6, 6, "rk4"),
    Size(512, 2048, 8, 6, 6, "rk4", recompute=True),
)
REFERENCE = SIZES[6]  # the one size at which the constant of memory is read off


class Endless:
    """A stream that gives the same batch for ever."""

    def __init__(self, size: Size) -> None:
        rows = size.tokens // size.length
        ids = torch.randint(4, size.vocabulary, (rows, size.length))
        self.batch = Batch(ids, ids.roll(1, 1), ids, size.tokens)

    def take(self, number: int) -> Batch:
        return self.batch

    def epoch_of(self, number: int) -> tuple[int, int]:
        return 0, number


def measure(size: Size, updates: int) -> dict[str, float]:
    """Seconds of an update, the machine's rates around it, and the peak above an idle process.

    The rates are taken before each update: where the machine slows down for a while, both do.
    """
    torch.set_num_threads(1)
    idle = memory_mb("self", "VmRSS")
    torch.manual_seed(1)
    config = TrainConfig(
        batch_tokens=size.tokens, recompute=size.recompute, device="cpu", workers=1, threads=1
    )
    trainer = make_trainer(size.model(), config, torch.device("cpu"))
    steps: Any = fit(trainer, Endless(size), config)  # type: ignore[arg-type]
    rows = [machine() | {"seconds": next(steps).seconds} for _ in range(updates + 2)][2:]
    middle = sorted(rows, key=lambda row: row["seconds"] * row["flops"])[len(rows) // 2]
    return middle | {"bytes": 1e6 * (memory_mb("self") - idle)}


def machine() -> dict[str, float]:
    """This machine on one thread: fp32 operations a second, and bytes that a sum moves a second."""
    a, b, out = (torch.rand(1024, 1024) for _ in range(3))
    x, y, z = (torch.rand(2_000_000) for _ in range(3))
    return {
        "flops": 2 * 1024**3 / _median_seconds(lambda: torch.mm(a, b, out=out)),
        "moved": 3 * x.nbytes / _median_seconds(lambda: torch.add(x, y, out=z)),
    }


def _median_seconds(action: Any) -> float:
    seconds: list[float] = []
    for _ in range(8):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[2:])


def apart(job: dict[str, Any]) -> dict[str, float]:
    """One measurement in a process of its own."""
    command = [sys.executable, __file__, "--job", json.dumps(job)]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def all_reduce(rank: int, store: str, sizes: list[int]) -> dict[str, float]:
    """Seconds that two processes need to sum so many bytes with gloo over loopback."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=Path(store).as_uri(), rank=rank, world_size=2)
    seconds: dict[str, float] = {}
    for size in sizes:
        numbers = torch.ones(size // 4)
        seconds[str(size)] = _median_seconds(lambda numbers=numbers: dist.all_reduce(numbers))
    dist.destroy_process_group()
    return seconds


def exchange(sizes: list[int]) -> dict[str, float]:
    """`all_reduce` in two processes at once."""
    with tempfile.TemporaryDirectory() as folder:
        job = {"kind": "exchange", "store": str(Path(folder) / "store"), "sizes": sizes}
        commands = [
            [sys.executable, __file__, "--job", json.dumps(job | {"rank": rank})] for rank in (0, 1)
        ]
        about = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        both = [subprocess.Popen(c, env=about, stdout=subprocess.PIPE) for c in commands]
        answers = [process.communicate()[0] for process in both]
    return json.loads(answers[0])


def compare(updates: int) -> dict[str, Any]:
    """Measure every size beside what the model says."""
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        measured = apart({"kind": "update", "size": asdict(size), "updates": updates})
        rows.append({"name": size.name, "size": asdict(size), **measured})
    return against_model(rows)


def against_model(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows with predictions by the machine's rates around each, and the constants in them."""
    constants = calibrate(rows)
    for row in rows:
        work = work_of(Size(**row["size"]))
        row["predicted_seconds"] = work.seconds(row["flops"], row["moved"], constants["passes"])
        row["predicted_bytes"] = work.states + work.kept * constants["memory"]
        row["gemm_share"] = work.flop / row["seconds"] / row["flops"]
    rates = {kind: statistics.median(row[kind] for row in rows) for kind in ("flops", "moved")}
    return {"rates": rates, "constants": constants, "rows": rows}


def calibrate(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The two constants that no formula gives.

    `passes`: how often every kept byte is read or written outside of matrix products, the median
    over all sizes: what is left of one size's time is little, and swings with the machine.
    `memory`: what is held at the peak, over what is kept for the backward pass, of one size.
    """
    reference = work_of(REFERENCE)
    peak = rows[SIZES.index(REFERENCE)]["bytes"]
    return {
        "passes": statistics.median(map(passes_of, rows)),
        "memory": (peak - reference.states) / reference.kept,
    }


def passes_of(row: dict[str, Any]) -> float:
    """How often a kept byte passes by this row alone."""
    work = work_of(Size(**row["size"]))
    left = row["seconds"] - work.seconds(row["flops"], row["moved"], passes=0.0)
    return left * row["moved"] / work.passing


def compare_exchange() -> list[dict[str, float]]:
    """gloo's all-reduce of gradients of several sizes, beside bytes / rate of the largest."""
    sizes = [int(work_of(size).exchanged) for size in (SIZES[0], SIZES[3], SIZES[6])]
    seconds = exchange(sizes)
    rate = sizes[-1] / seconds[str(sizes[-1])]  # w = 2: a ring moves each byte once
    link = Link(rate)
    return [
        {
            "megabytes": size / 1e6,
            "seconds": seconds[str(size)],
            "predicted": link.all_reduce(size, 2),
        }
        for size in sizes
    ]


def table_of(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="An update of one micro-batch, one thread: measured and predicted")
    for heading in ("model", "s", "predicted", "", "MB", "predicted", "", "GEMM share"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for row in rows:
        time_off = row["predicted_seconds"] / row["seconds"] - 1
        memory_off = row["predicted_bytes"] / row["bytes"] - 1
        table.add_row(
            row["name"],
            f"{row['seconds']:.3f}",
            f"{row['predicted_seconds']:.3f}",
            f"{time_off:+.0%}",
            f"{row['bytes'] / 1e6:,.0f}",
            f"{row['predicted_bytes'] / 1e6:,.0f}",
            f"{memory_off:+.0%}",
            f"{row['gemm_share']:.2f}",
        )
    return table


def perform(job: dict[str, Any]) -> dict[str, float]:
    """One measurement, in this process."""
    if job["kind"] == "exchange":
        return all_reduce(job["rank"], job["store"], job["sizes"])
    return measure(Size(**job["size"]), job["updates"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Check the cost model of docs/scaling.md.")
    parser.add_argument("--updates", type=int, default=8, help="updates that count, for each size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument("--job", help=argparse.SUPPRESS)  # a measurement in a process of its own
    chosen = parser.parse_args()
    if chosen.job:
        print(json.dumps(perform(json.loads(chosen.job))))
        return
    console = Console()
    figures = compare(chosen.updates)
    console.print(table_of(figures["rows"]))
    console.print({name: round(value, 2) for name, value in figures["constants"].items()})
    figures["exchange"] = compare_exchange()
    for row in figures["exchange"]:
        console.print(
            f"gloo, 2 processes, {row['megabytes']:.0f} MB: {row['seconds'] * 1e3:.0f} ms, "
            f"predicted {row['predicted'] * 1e3:.0f} ms"
        )
    if chosen.json:
        figures["machine"] = platform.platform()
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
