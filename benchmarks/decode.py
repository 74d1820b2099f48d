"""Decoding side by side: Kutta, CTranslate2 and Marian with the same weights, on a CPU.

Every program has processes of its own, and they take turns (`translating.py`). Weights are random
but the same everywhere; all translations have the same number of tokens. `--run` also translates
the test set of a trained run. `--help` says what can be chosen.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from decoders import ctranslate2, kutta, marian
from decoders.decoder import TRAINED, Case, Model, Place, Program
from environments import DEFAULT, Absent
from figures import Figure, Row
from invented import METHODS, SEED, sentences_of, write_run
from report import table_of_decoding, table_of_figures, table_of_scores
from rich.console import Console
from speeds import fastest, figures_of, measured, row_of
from train import settle
from trained import scores_of
from translating import LENGTH, Effort, Entrant, rounds

from kutta.data.workers import cores

PROGRAMS = (ctranslate2.PROGRAM, kutta.PROGRAM, marian.PROGRAM)
SIZES = ("base", "tiny")  # what matters most first
SINGLE_LENGTH = 20  # tokens of the sentences that are translated one by one
FULL = {
    "base": Effort(rounds=5, sentences=256, single=20, starts=3, tries=True),
    "tiny": Effort(rounds=7, sentences=256, single=20, starts=3, tries=True),
}
QUICK = {
    "base": Effort(rounds=2, sentences=128, single=5, patience=120.0),
    "tiny": Effort(rounds=3, sentences=64, single=5, patience=60.0),
}
QUICK_SECONDS = {"base": 7 * 60, "tiny": 9 * 60}  # since the start; the last turn is cut off then


class Bench:
    """One run: what was chosen, what was found, what is absent."""

    def __init__(self, chosen: argparse.Namespace, folder: Path, console: Console) -> None:
        self.chosen, self.folder, self.console = chosen, folder, console
        self.started, self.load = time.monotonic(), os.getloadavg()[0]
        self.before = kutta.checkout(chosen.before, folder / "before") if chosen.before else None
        self.rows: list[Row] = []
        self.ways: list[Row] = []
        self.scores: list[Row] = []
        self.figures: list[Figure] = []
        self.missing: list[str] = []
        self.absent: dict[str, str] = {}

    def say(self, text: str) -> None:
        self.console.print(text, style="dim", highlight=False, markup=False)

    def effort(self, size: str) -> Effort:
        effort = FULL[size]
        if self.chosen.quick:
            effort = replace(QUICK[size], until=self.started + QUICK_SECONDS[size])
        return replace(effort, rounds=self.chosen.rounds or effort.rounds)

    def measure(self, size: str) -> None:
        effort = self.effort(size)
        sentences = sentences_of(size, effort.sentences, effort.single, SINGLE_LENGTH)
        entrants = [e for method in METHODS for e in self.enter(Case(size, method))]
        if self.chosen.quick:  # those that targets are for before time is up
            entrants.sort(key=lambda e: e.way.case.method != "residual")
        rounds(entrants, effort, sentences, self.say)
        self.keep(size, entrants)

    def enter(self, case: Case) -> list[Entrant]:
        """All ways of decoding a model with random weights."""
        work = self.folder / f"{case.size}-{case.method}"
        model = Model(case, write_run(work / "run", case.size, case.method))
        others = (kutta.PROGRAM,) if self.chosen.quick else PROGRAMS[:2]  # CTranslate2 knows RK2
        return self.jobs(PROGRAMS if case.method == "residual" else others, model, work)

    def jobs(self, programs: tuple[Program, ...], model: Model, work: Path) -> list[Entrant]:
        install, threads = not self.chosen.no_install, self.chosen.threads
        place = Place(work, self.chosen.envs, install, threads, self.before)
        found: list[Entrant] = []
        for program in programs:
            for way in program.ways(model.case, threads):
                try:
                    found.append(Entrant(way, program.version(), program.job(place, model, way)))
                except Absent as reason:
                    self.absent[str(way)] = str(reason)
                    self.say(f"{way}: absent, {reason}")
        return found

    def keep(self, size: str, entrants: list[Entrant]) -> None:
        self.absent |= {str(e.way): e.absent for e in entrants if e.absent}
        self.rows += fastest(entrants)
        self.ways += [row_of(entrant) for entrant in measured(entrants)]
        figures, missing = figures_of(size, entrants)
        self.figures += figures
        self.missing += missing

    def translate(self, folder: Path) -> None:
        """The test set of a trained run, with every program that can compute it."""
        from kutta.runs import Run

        run = Run.load(folder)
        model = Model(Case(TRAINED, run.config.model.solver), run)
        work = self.folder / TRAINED
        work.mkdir()
        self.scores, absent = scores_of(model, self.jobs(PROGRAMS, model, work), self.say)
        self.absent |= absent

    def content(self) -> dict[str, Any]:
        """What was measured so far."""
        return {
            "kind": "decode",
            "machine": platform.platform(),
            "threads": self.chosen.threads,
            "seed": SEED,
            "tokens_out": LENGTH,
            "quick": self.chosen.quick,
            "before": self.chosen.before,
            "load": self.load,
            "elapsed_s": round(time.monotonic() - self.started),
            "rows": self.rows,
            "ways": self.ways,
            "scores": self.scores,
            "absent": self.absent,
            "figures": [{**asdict(f), "verdict": f.verdict} for f in self.figures],
            "not_measured": self.missing,
        }

    def report(self) -> None:
        if self.rows:
            self.console.print(table_of_decoding(self.rows))
        if self.scores:
            self.console.print(table_of_scores(self.scores))
        self.console.print(table_of_figures(self.figures))
        for name in self.missing:
            self.console.print(f"not measured: {name}", highlight=False, markup=False)
        for name, reason in self.absent.items():
            self.console.print(f"absent: {name}: {reason}", highlight=False, markup=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure decoding, side by side with peers.")
    parser.add_argument("--only", choices=(*SIZES, TRAINED), help="measure this part only")
    parser.add_argument("--quick", action="store_true", help="ten minutes at most")
    parser.add_argument("--rounds", type=int, help="turns of everyone, instead of the usual number")
    parser.add_argument("--threads", type=int, default=cores(), help="CPU threads")
    parser.add_argument("--run", type=Path, metavar="RUN", help="also score this trained run")
    parser.add_argument("--before", metavar="COMMIT", help="compare PyTorch with this commit's")
    parser.add_argument(
        "--envs", type=Path, default=DEFAULT, metavar="FOLDER", help="where peers are installed"
    )
    parser.add_argument("--no-install", action="store_true", help="leave out what is not installed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured")
    chosen = parser.parse_args()
    if not Path("/proc/self/status").exists():
        raise SystemExit("This benchmark reads the memory of processes from /proc: it needs Linux.")
    if chosen.only == TRAINED and not chosen.run:
        raise SystemExit("--only trained needs a trained run: --run RUN.")
    console = Console()
    settle(chosen.threads)
    with tempfile.TemporaryDirectory(prefix="kutta-decode-") as folder:
        bench = Bench(chosen, Path(folder), console)
        if bench.load > 0.5:
            console.print(f"This machine is busy (load {bench.load:.1f}): figures will be too low.")
        for size in [chosen.only] if chosen.only else SIZES:
            if size != TRAINED:
                bench.measure(size)
                write(bench)
        if chosen.run:
            bench.translate(chosen.run)
            write(bench)
    bench.report()


def write(bench: Bench) -> None:
    """Write what was measured so far, where a file was asked for."""
    if bench.chosen.json:
        text = json.dumps(bench.content(), indent=2) + "\n"
        bench.chosen.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
