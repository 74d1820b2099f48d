"""Speed and memory of training, held against the targets; `--help` says what can be chosen.

Every case runs in its own process (`measure.py`). Cases that are compared take turns, update by
update over the same batches, with the machine's own matrix-product rate measured in between: a
machine that slows down for a while then slows down all of them.
"""

import argparse
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from kutta.data.store import ROWS, write_store

MEASURE = Path(__file__).with_name("measure.py")
SOLVERS = ("euler", "rk2", "rk4")
PARTS = ("gemm", "base", "tiny", "store")
LARGE_STORE = 5_000_000


@dataclass(frozen=True)
class Figure:
    """One measured number; `at_least` or `at_most` make it a target."""

    case: str
    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:,g}"

    @property
    def verdict(self) -> str:
        if not self.target:
            return ""
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        return "ok" if low <= self.value <= high else "MISSED"


@dataclass(frozen=True)
class Effort:
    """What is measured, on how many processors, by which clock."""

    threads: int
    clock: str
    batch_tokens: int = 4096
    warmup: int = 2  # rounds that do not count
    rounds: int = 7


class Worker:
    """A process of measure.py that answers with one row for each `ask`."""

    def __init__(self, effort: Effort, measure: str, **job: Any) -> None:
        job |= {"measure": measure, "threads": effort.threads, "clock": effort.clock}
        self._process = subprocess.Popen(
            [sys.executable, str(MEASURE), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("A measuring process ended early; its message is above.")
        return json.loads(answer)

    def close(self) -> None:
        self._process.terminate()  # it may be in the middle of an update nobody waits for
        self._process.communicate()


@contextmanager
def worker(effort: Effort, measure: str, **job: Any) -> Iterator[Worker]:
    process = Worker(effort, measure, **job)
    try:
        yield process
    finally:
        process.close()


def synthetic_store(path: Path, pairs: int, vocabulary: int, typical: int) -> None:
    """Write a store of random pairs: lengths as in a corpus around `typical`, ids after Zipf."""
    write_store(path, (), vocabulary)  # an empty store, for its schema
    with pa.OSFile(str(path)) as empty:
        schema = pa.ipc.open_file(empty).schema
    random = np.random.default_rng(1)
    weights = 1 / np.arange(10, 10 + vocabulary - 4)
    ids = random.choice(vocabulary - 4, 2**23, p=weights / weights.sum()) + 4
    ids = ids.astype(schema.field(0).type.value_type.to_pandas_dtype())

    def column(lengths: Any) -> Any:
        offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
        begin = random.integers(len(ids) - offsets[-1])
        return pa.ListArray.from_arrays(offsets, pa.array(ids[begin : begin + offsets[-1]]))

    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for start in range(0, pairs, ROWS):
            rows = min(ROWS, pairs - start)
            source = random.lognormal(np.log(typical), 0.5, rows)
            target = source * random.lognormal(0.03, 0.15, rows)
            sides = [column(np.rint(side).clip(2, 120).astype(int)) for side in (source, target)]
            writer.write_batch(pa.record_batch(sides, schema=schema))


def forget(path: Path) -> None:
    """Put a file out of the system's cache where that is possible, as on the next morning."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure_gemm(effort: Effort) -> list[Figure]:
    with worker(effort, "gemm") as machine:
        rates = [machine.ask()["gflops"] for _ in range(5)]
    return [Figure("machine", "gemm_gflops", median(rates))]


def measure_updates(
    preset: str, vocabulary: int, typical: int, effort: Effort, folder: Path
) -> list[Figure]:
    """Train with every solver in turn and compare each with the machine and with Euler."""
    store = folder / f"{preset}.arrow"
    synthetic_store(store, 200_000, vocabulary, typical)
    job = {"store": str(store), "vocabulary": vocabulary, "batch_tokens": effort.batch_tokens}
    rates: list[float] = []
    rows: dict[str, list[dict[str, float]]] = {solver: [] for solver in SOLVERS}
    with ExitStack() as stack:
        machine = stack.enter_context(worker(effort, "gemm"))
        workers = {
            solver: stack.enter_context(
                worker(effort, "updates", preset=preset, solver=solver, **job)
            )
            for solver in SOLVERS
        }
        for _ in range(effort.warmup + effort.rounds):
            for solver, one in workers.items():
                rates.append(machine.ask()["gflops"])
                rows[solver].append(one.ask())
    rate = median(rates[effort.warmup * len(SOLVERS) :])
    measured = {solver: taken[effort.warmup :] for solver, taken in rows.items()}
    figures = [Figure(preset, "gemm_gflops", rate)]
    for solver in SOLVERS:
        figures += _figures_of(preset, solver, measured, rate)
    return figures


def _figures_of(
    preset: str, solver: str, measured: dict[str, list[dict[str, float]]], rate: float
) -> list[Figure]:
    """Speed, memory and share of the machine of one solver; its cost against Euler's."""
    case, rows, targets = f"{preset}-{solver}", measured[solver], preset == "base"
    share = median(row["gflop"] / row["seconds"] for row in rows) / rate
    wanted = 0.6 if targets and solver == "euler" else None
    figures = [
        Figure(case, "tokens_per_second", median(row["tokens"] / row["seconds"] for row in rows)),
        Figure(case, "peak_mb", rows[-1]["peak_mb"]),
        Figure(case, "gemm_share", share, at_least=wanted),
    ]
    if solver != "euler":
        ratios = [  # of time and of arithmetic, over the same batch
            (row["seconds"] / euler["seconds"], row["gflop"] / euler["gflop"])
            for row, euler in zip(rows, measured["euler"], strict=True)
        ]
        overhead = median(longer / more for longer, more in ratios)
        extra = median((longer - 1) / (more - 1) for longer, more in ratios)
        limit = 1.1 if targets else None
        figures += [
            Figure(case, "time_per_arithmetic", overhead, at_most=limit),
            Figure(case, "extra_time_per_extra_arithmetic", extra),
        ]
    return figures


def measure_store(effort: Effort, folder: Path) -> list[Figure]:
    """Start up on five million pairs, from a file that is not in memory yet."""
    store = folder / "large.arrow"
    synthetic_store(store, LARGE_STORE, 32_768, typical=24)
    rows = []
    for _ in range(3):
        forget(store)
        with worker(effort, "startup", store=str(store), batch_tokens=4096) as fresh:
            rows.append(fresh.ask())
    return [
        Figure("store-5m", "startup_s", median(row["seconds"] for row in rows), at_most=10),
        Figure("store-5m", "peak_mb", max(row["peak_mb"] for row in rows), at_most=1000),
        Figure("store-5m", "file_mb", store.stat().st_size / 1e6),
    ]


def measure(part: str, effort: Effort, folder: Path) -> list[Figure]:
    if part == "gemm":
        return measure_gemm(effort)
    if part == "base":
        return measure_updates("base", 32_768, 24, effort, folder)
    if part == "tiny":
        many = replace(effort, rounds=3 * effort.rounds)  # its updates are short
        return measure_updates("tiny", 10_000, 13, many, folder)
    return measure_store(effort, folder)


def table_of(figures: list[Figure]) -> Table:
    table = Table(title="Training: speed and memory")
    for heading, justify in (
        *(("case", "left"), ("figure", "left"), ("measured", "right")),
        *(("target", "right"), ("", "left")),
    ):
        table.add_column(heading, justify=justify)
    for figure in figures:
        digits = 0 if figure.value >= 100 else 2
        measured = f"{figure.value:,.{digits}f}"
        style = {"ok": "green", "MISSED": "red"}.get(figure.verdict)
        table.add_row(
            figure.case, figure.name, measured, figure.target, figure.verdict, style=style
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure speed and memory of training.")
    parser.add_argument("--only", choices=PARTS, help="measure this part only")
    parser.add_argument("--quick", action="store_true", help="smaller batches, fewer rounds")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="CPU threads")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu counts processor time of the main thread: for a machine that has other work",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    chosen = parser.parse_args()
    console = Console()
    effort = Effort(chosen.threads, chosen.clock)
    if chosen.quick:
        effort = replace(effort, batch_tokens=2048, warmup=1, rounds=3)
    # So that the stores, over half a gigabyte, are removed then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    load = os.getloadavg()[0]
    if load > 0.5 and chosen.clock == "wall":
        console.print(f"This machine is busy (load {load:.1f}); --clock cpu is less disturbed.")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="kutta-bench-") as folder:
        for part in [chosen.only] if chosen.only else PARTS:
            started = time.perf_counter()
            figures += measure(part, effort, Path(folder))
            console.print(f"measured {part} in {time.perf_counter() - started:.0f} s", style="dim")
    console.print(table_of(figures))
    if chosen.json:
        about = {**asdict(effort), "load": load, "machine": platform.platform()}
        rows = [{**asdict(figure), "verdict": figure.verdict} for figure in figures]
        chosen.json.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
