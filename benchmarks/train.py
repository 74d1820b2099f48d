"""Training side by side: Kutta and its peers, speed and memory; `--help` says what can be chosen.

Every toolkit trains the same sizes on the same text, in an environment and processes of its own,
and they take turns (`contest.py`) with the machine's own matrix product in between. Some parts
compare Kutta with itself: what a method costs, what bf16 and compilation give on a CPU.
"""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median

from contest import Effort, Entrant, contest, running
from corpus import Corpus, unpack
from environments import DEFAULT, Absent, python_of
from figures import (
    Figure,
    Row,
    fastest,
    figures_of,
    finalists,
    own_figures,
    row_of,
    version_figures,
)
from gemm import Gemm
from peers import eole, fairseq, joeynmt, kutta, marian
from peers.toolkit import SIZES, UPDATE_TOKENS, Case, Division, Place, Size, Toolkit
from report import table_of_figures, table_of_rows
from rich.console import Console

from kutta.data.workers import cores

KUTTA = kutta.TOOLKIT
PEERS = (marian.TOOLKIT, fairseq.TOOLKIT, eole.TOOLKIT, joeynmt.TOOLKIT)
FIRST = (KUTTA, marian.TOOLKIT)
PARTS = ("gemm", "tiny", "base")
FULL = {
    "tiny": Effort(warmup=3, updates=3, rounds=9),
    "base": Effort(warmup=1, updates=2, rounds=1, waits=False),  # all together would be too large
}
FINALS = {"base": Effort(warmup=2, updates=1, rounds=8)}
QUICK = {
    "tiny": replace(FULL["tiny"], rounds=3),
    "base": Effort(warmup=1, updates=1, rounds=5),
}
VERSIONS = {
    "tiny": Effort(warmup=3, updates=3, rounds=9),
    "base": Effort(warmup=1, updates=1, rounds=9),
}
QUICK_SECONDS = {"tiny": 4 * 60, "base": 9 * 60}  # since the start; the last turn is cut off then
DATA = Path(__file__).parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Own:
    """Ways in which Kutta trains, beside each other and over the same batches."""

    size: Size
    methods: tuple[str, ...]
    division: Division
    effort: Effort


TINY, BASE = SIZES
OWN = {
    "methods": Own(
        BASE,
        ("euler", "rk2", "rk4"),
        Division(micro_batches=8, lanes=2),
        Effort(1, updates=1, rounds=9),
    ),
    "precision": Own(
        BASE,
        ("euler", "euler+bf16", "rk4", "rk4+bf16"),
        Division(8, lanes=2),
        Effort(1, 1, rounds=5),
    ),
    # Every shape of a batch is compiled when it comes for the first time: most do in 25 updates.
    "compile": Own(
        TINY,
        ("euler", "euler+compile", "rk4", "rk4+compile"),
        Division(micro_batches=4, processes=2),  # lanes do not compile
        Effort(25, updates=3, rounds=5, patience=1800.0),
    ),
}


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

    def places(self, toolkits: Iterable[Toolkit]) -> Iterator[tuple[Toolkit, Place]]:
        """Each toolkit that is installed, or can be, with the text prepared for it."""
        for toolkit in toolkits:
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
        if toolkit is KUTTA or self.chosen.before:
            return Path(sys.executable)
        install = not self.chosen.quick or toolkit in FIRST  # Marian takes half a minute
        return python_of(toolkit.name, toolkit.install, self.chosen.envs, install)

    def unpack(self, toolkits: Iterable[Toolkit]) -> None:
        text = self.folder / "text"
        text.mkdir()
        self.corpus: Corpus = unpack(self.chosen.data, text)
        self.toolkits = list(self.places(toolkits))

    def measure(self, part: str) -> None:
        started = time.perf_counter()
        if part == "gemm":
            with Gemm(self.chosen.threads) as machine:
                rate = median(machine.gflops() for _ in range(5))
            self.figures.append(Figure("machine", "gemm_gflops", rate))
        elif part in OWN:
            self.itself(part)
        elif self.chosen.before:
            self.versions(next(size for size in SIZES if size.name == part))
        else:
            self.side_by_side(next(size for size in SIZES if size.name == part))
        self.say(f"measured {part} in {time.perf_counter() - started:.0f} s")

    def itself(self, part: str) -> None:
        own = OWN[part]
        cases = [Case(own.size, method, own.division) for method in own.methods]
        entrants = [
            e for toolkit, place in self.toolkits for e in self.enter(toolkit, place, cases)
        ]
        with Gemm(self.chosen.threads) as machine:
            gemm = contest(entrants, self.effort(own.effort), machine.gflops, self.say)
        self.keep(part, entrants, gemm)
        self.figures += own_figures(entrants, self.corpus)

    def versions(self, size: Size) -> None:
        """Kutta now and at the revision `--before`, in its usual way."""
        case = Case(size, "euler", KUTTA.usual[size.name])
        entrants = [
            e for toolkit, place in self.toolkits for e in self.enter(toolkit, place, [case])
        ]
        with Gemm(self.chosen.threads) as machine:
            gemm = contest(entrants, self.effort(VERSIONS[size.name]), machine.gflops, self.say)
        self.keep(size.name, entrants, gemm)
        measured = running(entrants)
        if len(measured) == 2:
            self.figures += version_figures(*measured)

    def effort(self, usual: Effort) -> Effort:
        return replace(usual, rounds=self.chosen.rounds) if self.chosen.rounds else usual

    def keep(self, part: str, entrants: list[Entrant], gemm: dict[int, float]) -> None:
        self.gemm[part] = [round(rate, 1) for rate in gemm.values()]
        self.absent |= {e.name: e.absent for e in entrants if e.absent}
        self.rows += [row_of(e, gemm, self.corpus) for e in running(entrants)]

    def side_by_side(self, size: Size) -> None:
        effort = FULL[size.name]
        if self.chosen.quick:
            until = self.started + QUICK_SECONDS[size.name]
            effort = replace(QUICK[size.name], until=until)
        effort = self.effort(effort)
        entrants = [
            entrant
            for toolkit, place in self.toolkits
            for entrant in self.enter(toolkit, place, self.cases(toolkit, size))
        ]
        if self.chosen.quick:  # what matters most before time is up
            entrants.sort(key=lambda e: (e.case.method != "euler", e.toolkit not in FIRST))
        with Gemm(self.chosen.threads) as machine:
            gemm = contest(entrants, effort, machine.gflops, self.say)
            if size.name in FINALS and not self.chosen.quick:
                best, effort = finalists(running(entrants)), FINALS[size.name]
                first = len(gemm)
                gemm |= contest(best, effort, machine.gflops, self.say, first)
        self.keep(size.name, entrants, gemm)
        self.figures += figures_of(size, entrants, self.corpus, gemm)

    def cases(self, toolkit: Toolkit, size: Size) -> Iterator[Case]:
        """The ways in which a toolkit is measured."""
        methods, divisions = toolkit.methods, toolkit.divisions
        usual = toolkit.usual.get(size.name, divisions[-1])
        if self.chosen.quick:  # one division, without knowing that it is the fastest
            methods, divisions = methods[:3], (usual,)
        for method, division in product(methods, divisions):
            if method == methods[0] or division == usual:  # others in one way only: long enough
                yield Case(size, method, division)

    def enter(self, toolkit: Toolkit, place: Place, cases: Iterable[Case]) -> Iterator[Entrant]:
        for case in cases:
            try:
                yield Entrant(toolkit, case, toolkit.job(place, case))
            except Absent as reason:
                self.absent[f"{toolkit.name} {case}"] = str(reason)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure training, side by side with peers.")
    parser.add_argument("--only", choices=(*PARTS, *OWN), help="measure this part only")
    parser.add_argument("--quick", action="store_true", help="ten minutes; installs Marian at most")
    parser.add_argument(
        "--before", metavar="REVISION", help="compare with an earlier Kutta instead of peers"
    )
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
    parts = [chosen.only] if chosen.only else PARTS
    with tempfile.TemporaryDirectory(prefix="kutta-bench-") as folder:
        os.environ["TMPDIR"] = folder  # what an ended training leaves behind goes with it
        bench = Bench(chosen, Path(folder), console)
        if parts != ["gemm"]:
            bench.unpack(toolkits_of(chosen, Path(folder)))
        for part in parts:
            bench.measure(part)
            write(bench, load)  # now: the next part may take half an hour
    report(bench)


def toolkits_of(chosen: argparse.Namespace, folder: Path) -> tuple[Toolkit, ...]:
    """Who takes part."""
    if chosen.only in OWN:
        return (KUTTA,)
    if chosen.before:
        return (KUTTA, kutta.earlier(chosen.before, folder / "before"))
    return (KUTTA, *PEERS)


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
