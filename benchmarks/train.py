"""Training side by side: Kutta and its peers, speed and memory; `--help` says what can be chosen.

Every toolkit trains the same sizes on the same text, in an environment and processes of its own,
and they take turns (`contest.py`) with the machine's own matrix product in between.
"""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from statistics import median

from contest import Effort, Entrant, contest, running
from corpus import Corpus, unpack
from environments import DEFAULT, Absent, python_of
from figures import Figure, Row, fastest, figures_of, finalists, row_of
from peers import eole, fairseq, joeynmt, kutta, marian
from peers.toolkit import SIZES, UPDATE_TOKENS, Case, Place, Size, Toolkit
from rich.console import Console
from store import measure_store
from tables import table_of_figures, table_of_rows
from worker import Worker, worker

from kutta.data.workers import cores

KUTTA = kutta.TOOLKIT
PEERS = (marian.TOOLKIT, fairseq.TOOLKIT, eole.TOOLKIT, joeynmt.TOOLKIT)
FIRST = (KUTTA, marian.TOOLKIT)
PARTS = ("gemm", "tiny", "base", "store")
FULL = {
    "tiny": Effort(warmup=3, updates=3, rounds=9),
    "base": Effort(warmup=1, updates=2, rounds=1, waits=False),  # all together would be too large
}
FINALS = {"base": Effort(warmup=2, updates=1, rounds=8)}
QUICK = {
    "tiny": replace(FULL["tiny"], rounds=3),
    "base": Effort(warmup=1, updates=1, rounds=5),
}
QUICK_SECONDS = {"tiny": 4 * 60, "base": 9 * 60}  # since the start; the last turn is cut off then
DATA = Path(__file__).parents[2] / "shared" / "data"


class Bench:
    """One run: what was chosen, what was found, what is absent."""

    def __init__(self, chosen: argparse.Namespace, folder: Path, console: Console) -> None:
        self.chosen, self.folder, self.console = chosen, folder, console
        self.started = time.monotonic()
        self.rows: list[Row] = []
        self.figures: list[Figure] = []
        self.absent: dict[str, str] = {}
        self.gemm: dict[str, list[float]] = {}  # by size, in each round

    def say(self, text: str) -> None:
        self.console.print(text, style="dim", highlight=False, markup=False)

    def places(self) -> Iterator[tuple[Toolkit, Place]]:
        """Each toolkit that is installed, or can be, with the text prepared for it."""
        for toolkit in (KUTTA, *PEERS):
            work = self.folder / toolkit.name.lower()
            work.mkdir()
            try:
                python = self.python_of(toolkit)
                place = Place(python, self.corpus.folder, work, self.chosen.threads)
                toolkit.prepare(place)
                yield toolkit, place
            except Absent as reason:
                self.absent[toolkit.name] = str(reason)
                self.say(f"{toolkit.name} is absent: {reason}")

    def python_of(self, toolkit: Toolkit) -> Path:
        if toolkit is KUTTA:
            return Path(sys.executable)
        install = not self.chosen.quick or toolkit in FIRST  # Marian takes half a minute
        return python_of(toolkit.name, toolkit.install, self.chosen.envs, install)

    def unpack(self) -> None:
        text = self.folder / "text"
        text.mkdir()
        self.corpus: Corpus = unpack(self.chosen.data, text)
        self.toolkits = list(self.places())

    def measure(self, part: str) -> None:
        started = time.perf_counter()
        if part == "gemm":
            with worker(self.chosen.threads, "gemm") as machine:
                rate = median(machine.ask()["gflops"] for _ in range(5))
            self.figures.append(Figure("machine", "gemm_gflops", rate))
        elif part == "store":
            self.figures += measure_store(self.chosen.threads, self.folder)
        else:
            self.side_by_side(next(size for size in SIZES if size.name == part))
        self.say(f"measured {part} in {time.perf_counter() - started:.0f} s")

    def side_by_side(self, size: Size) -> None:
        effort = FULL[size.name]
        if self.chosen.quick:
            until = self.started + QUICK_SECONDS[size.name]
            effort = replace(QUICK[size.name], until=until)
        if self.chosen.rounds:
            effort = replace(effort, rounds=self.chosen.rounds)
        entrants = [
            e for toolkit, place in self.toolkits for e in self.entrants(toolkit, place, size)
        ]
        if self.chosen.quick:  # what matters most before time is up
            entrants.sort(key=lambda e: (e.case.method != "euler", e.toolkit not in FIRST))
        with worker(self.chosen.threads, "gemm") as machine:
            gemm = contest(entrants, effort, lambda: rate_of(machine), self.say)
            if size.name in FINALS and not self.chosen.quick:
                best, effort = finalists(running(entrants)), FINALS[size.name]
                first = len(gemm)
                gemm |= contest(best, effort, lambda: rate_of(machine), self.say, first)
        self.gemm[size.name] = [round(rate, 1) for rate in gemm.values()]
        self.absent |= {e.name: e.absent for e in entrants if e.absent}
        self.figures += figures_of(size, entrants, self.corpus, gemm)
        self.rows += [row_of(e, gemm, self.corpus) for e in running(entrants)]

    def entrants(self, toolkit: Toolkit, place: Place, size: Size) -> Iterator[Entrant]:
        methods, splits = toolkit.methods, toolkit.splits
        usual = toolkit.usual.get(size.name, splits[-1])
        if self.chosen.quick:  # one split, without knowing that it is the fastest
            methods, splits = methods[:3], (usual,)
        for method, split in product(methods, splits):
            if method != methods[0] and split != usual:
                continue  # other methods in one way only, which takes long enough
            case = Case(size, method, split)
            try:
                yield Entrant(toolkit, case, toolkit.job(place, case))
            except Absent as reason:
                self.absent[f"{toolkit.name} {case}"] = str(reason)


def rate_of(machine: Worker) -> float:
    return machine.ask()["gflops"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure training, side by side with peers.")
    parser.add_argument("--only", choices=PARTS, help="measure this part only")
    parser.add_argument("--quick", action="store_true", help="ten minutes; installs Marian at most")
    parser.add_argument("--rounds", type=int, help="turns of everyone, instead of the usual number")
    parser.add_argument("--threads", type=int, default=cores(), help="CPU threads")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FOLDER", help="the corpora")
    parser.add_argument(
        "--envs", type=Path, default=DEFAULT, metavar="FOLDER", help="where peers are installed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured")
    chosen = parser.parse_args()
    if not Path("/proc/self/status").exists():
        raise SystemExit("This benchmark reads the memory of processes from /proc: it needs Linux.")
    console = Console()
    settle(chosen.threads)
    load = os.getloadavg()[0]
    if load > 0.5:
        console.print(f"This machine is busy (load {load:.1f}): the figures will be too low.")
    parts = [chosen.only] if chosen.only else PARTS[:3] if chosen.quick else PARTS
    with tempfile.TemporaryDirectory(prefix="kutta-bench-") as folder:
        os.environ["TMPDIR"] = folder  # what an ended training leaves behind goes with it
        bench = Bench(chosen, Path(folder), console)
        if {"tiny", "base"} & set(parts):
            bench.unpack()
        for part in parts:
            bench.measure(part)
            write(bench, load)  # now: the next part may take half an hour
    report(bench)


def settle(threads: int) -> None:
    """Use so many cores only, here and in all that is started from here, and end in good order."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    for number in (signal.SIGTERM, signal.SIGHUP):  # what is paused is ended then too
        signal.signal(number, lambda *_: sys.exit("stopped"))


def report(bench: Bench) -> None:
    """Print the tables."""
    console = bench.console
    if bench.rows:
        console.print(table_of_rows(bench.rows))
    console.print(table_of_figures(bench.figures))
    for name, reason in bench.absent.items():
        console.print(f"absent: {name}: {reason}", highlight=False, markup=False)


def write(bench: Bench, load: float) -> None:
    """Write what was measured so far, where a file was asked for."""
    if bench.chosen.json:
        content = {
            "machine": platform.platform(),
            "threads": bench.chosen.threads,
            "update_tokens": UPDATE_TOKENS,
            "load": load,
            "elapsed_s": round(time.monotonic() - bench.started),
            "gemm_gflops": bench.gemm,
            "rows": fastest(bench.rows),
            "ways": bench.rows,
            "absent": bench.absent,
            "figures": [{**asdict(f), "verdict": f.verdict} for f in bench.figures],
        }
        bench.chosen.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
