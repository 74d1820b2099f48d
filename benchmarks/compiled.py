"""What `train.compile` gives on a CPU: tiny size with it and without, in turns."""

import argparse
import json
import tempfile
from pathlib import Path

from contest import Effort, Entrant, contest, running
from corpus import unpack
from environments import Absent
from figures import row_of
from peers import kutta
from peers.toolkit import SIZES, Case, Place, Split
from rich.console import Console
from tables import table_of_rows
from train import DATA, rate_of, settle
from worker import worker

from kutta.data.workers import cores

TINY = SIZES[0]
METHODS = ("euler", "euler+compile", "rk4", "rk4+compile")
SPLIT = Split(pieces=4, processes=2)  # lanes do not compile
# Every shape of a batch is compiled when it comes for the first time: most do in 25 updates.
EFFORT = Effort(warmup=25, updates=3, rounds=5, patience=1800.0)


def entrant_of(method: str, place: Place) -> Entrant:
    case = Case(TINY, method, SPLIT)
    try:
        return Entrant(kutta.TOOLKIT, case, kutta.TOOLKIT.job(place, case))
    except Absent as reason:
        raise SystemExit(f"{case}: {reason}") from reason


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=cores(), help="CPU threads")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FOLDER", help="the corpora")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured")
    chosen = parser.parse_args()
    console = Console()
    settle(chosen.threads)
    with tempfile.TemporaryDirectory(prefix="kutta-compiled-") as name:
        text, work = Path(name) / "text", Path(name) / "work"
        text.mkdir()
        work.mkdir()
        corpus = unpack(chosen.data, text)
        place = Place(Path(), corpus.folder, work, chosen.threads)
        entrants = [entrant_of(method, place) for method in METHODS]
        with worker(chosen.threads, "gemm") as machine:
            gemm = contest(entrants, EFFORT, lambda: rate_of(machine), console.print)
    rows = [row_of(entrant, gemm, corpus) for entrant in running(entrants)]
    if chosen.json:
        chosen.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n", "utf-8")
    console.print(table_of_rows(rows))


if __name__ == "__main__":
    main()
