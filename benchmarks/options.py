"""What options of training cost and give: recomputation at base size, compilation at tiny size.

Each is held against the same training without it, in turns; `--help` says what can be chosen.
"""

import argparse
import json
import tempfile
from pathlib import Path

from contest import Effort, Entrant, contest, running
from corpus import Corpus, unpack
from environments import Absent
from figures import Row, row_of
from peers import kutta
from peers.toolkit import SIZES, Case, Place, Split
from rich.console import Console
from tables import table_of_rows
from train import DATA, rate_of, settle
from worker import worker

from kutta.data.workers import cores

METHODS = {
    "tiny": ("euler", "euler+compile", "rk4", "rk4+compile"),
    "base": ("euler", "euler+recompute", "rk2", "rk2+recompute", "rk4", "rk4+recompute"),
}
# Lanes do not compile: each process has one thread, with and without.
SPLITS = {"tiny": Split(pieces=4, processes=2), "base": Split(pieces=8, lanes=2)}
EFFORTS = {
    # Every shape of a batch is compiled when it comes for the first time: most do in 25 updates.
    "tiny": Effort(warmup=25, updates=3, rounds=5, patience=1800.0),
    "base": Effort(warmup=1, updates=1, rounds=3, waits=False),
}


def measure(
    size_name: str, corpus: Corpus, folder: Path, threads: int, console: Console
) -> list[Row]:
    """A row for each method of a size."""
    size = next(size for size in SIZES if size.name == size_name)
    work = folder / size_name
    work.mkdir()
    place = Place(Path(), corpus.folder, work, threads)
    toolkit = kutta.TOOLKIT
    entrants: list[Entrant] = []
    for method in METHODS[size_name]:
        case = Case(size, method, SPLITS[size_name])
        try:
            entrants.append(Entrant(toolkit, case, toolkit.job(place, case)))
        except Absent as reason:
            raise SystemExit(f"{case}: {reason}") from reason
    with worker(threads, "gemm") as machine:
        gemm = contest(entrants, EFFORTS[size_name], lambda: rate_of(machine), console.print)
    return [row_of(entrant, gemm, corpus) for entrant in running(entrants)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=METHODS, help="this size only")
    parser.add_argument("--threads", type=int, default=cores(), help="CPU threads")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FOLDER", help="the corpora")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured")
    chosen = parser.parse_args()
    console, rows = Console(), list[Row]()
    settle(chosen.threads)
    with tempfile.TemporaryDirectory(prefix="kutta-options-") as name:
        folder = Path(name)
        text = folder / "text"
        text.mkdir()
        corpus = unpack(chosen.data, text)
        for size in [chosen.only] if chosen.only else METHODS:
            rows += measure(size, corpus, folder, chosen.threads, console)
            if chosen.json:
                chosen.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n", "utf-8")
    console.print(table_of_rows(rows))


if __name__ == "__main__":
    main()
