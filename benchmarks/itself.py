"""Kutta against itself, in turns: what a method costs, what bf16 and compilation give on a CPU."""

import argparse
import json
import os
import platform
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from contest import Effort, Entrant, contest, running
from corpus import Corpus, unpack
from environments import Absent
from figures import Figure, Row, row_of, time_per_arithmetic, times_faster
from peers import kutta
from peers.toolkit import SIZES, Case, Place, Size, Split
from rich.console import Console
from tables import table_of_figures, table_of_rows
from train import DATA, rate_of, settle
from worker import worker

from kutta.data.workers import cores

TINY, BASE = SIZES


@dataclass(frozen=True)
class Part:
    """Ways of training that wait for each other's turns and see the same batches."""

    size: Size
    methods: tuple[str, ...]
    split: Split
    effort: Effort


PARTS = {
    "methods": Part(
        BASE, ("euler", "rk2", "rk4"), Split(pieces=8, lanes=2), Effort(1, updates=1, rounds=9)
    ),
    "precision": Part(
        BASE, ("euler", "euler+bf16", "rk4", "rk4+bf16"), Split(8, lanes=2), Effort(1, 1, rounds=5)
    ),
    # Every shape of a batch is compiled when it comes for the first time: most do in 25 updates.
    "compile": Part(
        TINY,
        ("euler", "euler+compile", "rk4", "rk4+compile"),
        Split(pieces=4, processes=2),  # lanes do not compile
        Effort(25, updates=3, rounds=5, patience=1800.0),
    ),
}


def measure(
    part: Part, place: Place, corpus: Corpus, console: Console
) -> tuple[list[Row], list[Figure]]:
    """A row for each way, and how they stand to each other."""
    entrants: list[Entrant] = []
    for method in part.methods:
        case = Case(part.size, method, part.split)
        try:
            entrants.append(Entrant(kutta.TOOLKIT, case, kutta.TOOLKIT.job(place, case)))
        except Absent as reason:
            raise SystemExit(f"{case}: {reason}") from reason
    with worker(place.threads, "gemm") as machine:
        gemm = contest(entrants, part.effort, lambda: rate_of(machine), console.print)
    ways = {entrant.case.method: entrant for entrant in running(entrants)}
    figures: list[Figure] = []
    for method, way in ways.items():
        solver, _, option = method.partition("+")
        plain = ways.get(solver if option else "euler")
        if plain is None or plain is way:
            continue
        if option:
            name, speed = f"{method}: speed / without", times_faster(way, plain)
            figures.append(Figure(part.size.name, name, speed))
        elif part.size is BASE:
            name, cost = f"{method} time_per_arithmetic", time_per_arithmetic(plain, way, corpus)
            figures.append(Figure(part.size.name, name, cost, at_most=1.05))
    return [row_of(entrant, gemm, corpus) for entrant in ways.values()], figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="measure this part only")
    parser.add_argument("--threads", type=int, default=cores(), help="CPU threads")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FOLDER", help="the corpora")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured")
    chosen = parser.parse_args()
    console, rows, figures = Console(), list[Row](), list[Figure]()
    settle(chosen.threads)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="kutta-itself-") as name:
        text, work = Path(name) / "text", Path(name) / "work"
        text.mkdir()
        work.mkdir()
        corpus = unpack(chosen.data, text)
        place = Place(Path(), corpus.folder, work, chosen.threads)
        for part in [chosen.only] if chosen.only else PARTS:
            more = measure(PARTS[part], place, corpus, console)
            rows, figures = rows + more[0], figures + more[1]
            if chosen.json:
                verdicts = [{**asdict(f), "verdict": f.verdict} for f in figures]
                machine = {"machine": platform.platform(), "threads": chosen.threads, "load": load}
                content = machine | {"rows": rows, "figures": verdicts}
                chosen.json.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    console.print(table_of_rows(rows))
    console.print(table_of_figures(figures))


if __name__ == "__main__":
    main()
