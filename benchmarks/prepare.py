"""Speed and memory of `kutta prepare`: beside its peers on the same text, and as text grows.

Peers run in environments of their own, made here from the package registry. Every measurement is
a process of its own; those that are compared take turns. `--help` says what can be chosen.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from corpus import LANGUAGES, VALID, invent
from environments import DEFAULT, Absent, python_of
from environments import run as finish
from rich.console import Console
from rich.table import Table
from trainee import family, memory_mb

from kutta.data.workers import cores

VOCABULARY = 16_000
Row = dict[str, Any]

LEARN = """
import sys
from pathlib import Path
from kutta.config import DataConfig
from kutta.data.prepare import learn_tokenizers
folder, text, vocabulary = sys.argv[1:]
data = DataConfig(dir=folder, source="en", target="de", train=text, vocab_size=int(vocabulary))
learn_tokenizers(data).save(Path(folder))
"""
KUTTA = """
import sys
from pathlib import Path
from kutta.config import DataConfig
from kutta.data.prepare import prepare
from kutta.data.tokenizer import Tokenizers
folder, out, model, processes = sys.argv[1:]
data = DataConfig(dir=folder, source="en", target="de", max_ratio=1e9)
prepare(data, Path(out), Path(out), Tokenizers.load(Path(model)), int(processes))
"""
# What spm_encode does, which is not in the wheel: batches of lines to ids, here in binary.
SENTENCEPIECE = """
import sys
from array import array
from itertools import chain, islice
from sentencepiece import SentencePieceProcessor
folder, out, model, threads = sys.argv[1:]
processor = SentencePieceProcessor(model_file=model + "/tokenizer.model")
for language in ("en", "de"):
    with open(f"{folder}/train.{language}") as lines, open(f"{out}/ids.{language}", "wb") as ids:
        while batch := [line.rstrip("\\n") for line in islice(lines, 8192)]:
            encoded = processor.encode(batch, num_threads=int(threads))
            array("i", chain.from_iterable(encoded)).tofile(ids)
"""
SUBWORD_NMT = """
import subprocess, sys
folder, out, model, workers = sys.argv[1:]
command = [sys.executable, "-m", "subword_nmt.apply_bpe", "-c", model + "/codes"]
for language in ("en", "de"):
    subprocess.run([*command, "--num-workers", workers, "-i", f"{folder}/train.{language}",
                    "-o", f"{out}/subwords.{language}"], check=True, stderr=subprocess.DEVNULL)
"""
OPEN = """
import json, sys, time
from pathlib import Path
import torch
from kutta.data.batches import BatchStream
from kutta.data.store import Store
started = time.perf_counter()
stream = BatchStream(Store.open(Path(sys.argv[1])), 4096, seed=1)
opened = time.perf_counter()
stream.largest()
found = time.perf_counter()
for number in range(20):
    stream.take(number)
ended = time.perf_counter()
print(json.dumps({"open_s": opened - started, "largest_s": found - opened,
                  "batches_s": ended - found}))
"""


@dataclass(frozen=True)
class Contestant:
    """A program that encodes train.en and train.de of a folder, in its environment."""

    name: str
    program: str
    package: str | None = None  # None: Kutta, in this environment

    def python(self, environments: Path) -> Path:
        if self.package is None:
            return Path(sys.executable)
        return python_of(f"prepare-{self.name}", ((self.package,),), environments, install=True)


CONTESTANTS = (
    Contestant("Kutta", KUTTA),
    Contestant("sentencepiece", SENTENCEPIECE, "sentencepiece==0.2.2"),
    Contestant("subword-nmt", SUBWORD_NMT, "subword-nmt==0.3.8"),
)


def tree_mb(root: int) -> float:
    """Memory of a process and all that it started (resident; what they share counts twice)."""
    total = 0.0
    for pid in family(root):
        with suppress(OSError, StopIteration):  # it has just ended
            total += memory_mb(pid, "VmRSS")
    return total


def processor_seconds() -> float:
    """Of all processes that were started here and have ended, with those that they started."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def run(python: Path, program: str, *arguments: Any) -> Row:
    """Run a program to its end: its own figures, its time and the peak memory of its tree."""
    started, used, peak = time.perf_counter(), processor_seconds(), 0.0
    command = [str(python), "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            peak = max(peak, tree_mb(process.pid))
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)  # looking costs a few milliseconds: seldom, but the end at once
        seconds = time.perf_counter() - started
        printed = process.stdout.read() if process.stdout else ""
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}")
    used = processor_seconds() - used
    return {"seconds": seconds, "cpu_s": used, "peak_mb": peak, **json.loads(printed or "{}")}


def compare(folder: Path, pairs: int, rounds: int, environments: Path) -> list[Row]:
    """Lines per second of every contestant, on one core and on all."""
    invent(folder, pairs)
    run(Path(sys.executable), LEARN, folder, "valid", VOCABULARY)
    absent: dict[str, str] = {}
    pythons: dict[str, Path] = {}
    for contestant in CONTESTANTS:
        try:
            pythons[contestant.name] = contestant.python(environments)
        except Absent as reason:
            absent[contestant.name] = str(reason)
    if "subword-nmt" in pythons:
        files = [folder / f"valid.{language}" for language in LANGUAGES]
        (folder / "both").write_bytes(b"".join(file.read_bytes() for file in files))
        learn = [str(pythons["subword-nmt"]), "-m", "subword_nmt.learn_bpe", "-s", str(VOCABULARY)]
        finish([*learn, "-i", str(folder / "both"), "-o", str(folder / "codes")])
    seconds: dict[tuple[str, int], list[Row]] = {}
    for _ in range(rounds):
        for used in sorted({1, cores()}):
            for contestant in CONTESTANTS:
                if contestant.name in pythons:
                    python = pythons[contestant.name]
                    row = run(python, contestant.program, folder, folder, folder, used)
                    seconds.setdefault((contestant.name, used), []).append(row)
    rows: list[Row] = [{"toolkit": name, "absent": why} for name, why in absent.items()]
    for (name, used), measured in seconds.items():
        typical = median(row["seconds"] for row in measured)
        lines = 2 * (pairs + (VALID if name == "Kutta" else 0))  # it prepares both
        rows.append(
            {
                "toolkit": name,
                "cores": used,
                "lines_per_second": lines / typical,
                "lines_per_cpu_s": lines / median(row["cpu_s"] for row in measured),
                "seconds": typical,
                "fastest_s": min(row["seconds"] for row in measured),
                "slowest_s": max(row["seconds"] for row in measured),
                "peak_mb": max(row["peak_mb"] for row in measured),
            }
        )
    return rows


def grow(folder: Path, pairs: int) -> Row:
    """Prepare a corpus of so many pairs, then start on it, as far as the 20th batch.

    Learning and encoding are processes of their own, so that the memory of one does not hide that
    of the other.
    """
    python = Path(sys.executable)
    size = invent(folder, pairs)
    learned = run(python, LEARN, folder, "train", 32_000)
    encoded = run(python, KUTTA, folder, folder, folder, cores())
    store = folder / "train.arrow"
    opened = run(python, OPEN, store)
    return {
        "pairs": pairs,
        "text_mb": size / 1e6,
        "store_mb": store.stat().st_size / 1e6,
        "learn_s": learned["seconds"],
        "learn_peak_mb": learned["peak_mb"],
        "encode_s": encoded["seconds"],
        "encode_cpu_s": encoded["cpu_s"],
        "encode_peak_mb": encoded["peak_mb"],
        "lines_per_second": 2 * (pairs + VALID) / encoded["seconds"],
        "start_s": opened["seconds"],  # Python and libraries included
        "open_s": opened["open_s"],
        "largest_s": opened["largest_s"],
        "batches_s": opened["batches_s"],
        "open_peak_mb": opened["peak_mb"],
    }


def show(title: str, rows: list[Row]) -> None:
    table = Table(title=title)
    for name in rows[-1]:
        table.add_column(name, justify="right")
    for row in rows:
        cells = (f"{v:,.1f}" if isinstance(v, float) else str(v) for v in row.values())
        table.add_row(*cells)
    Console(width=160).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("compare", "grow"), help="one part of the two")
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 4_000_000])
    parser.add_argument("--compared", type=int, default=200_000, help="pairs of the comparison")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--envs", type=Path, default=DEFAULT)
    parser.add_argument("--quick", action="store_true", help="a few minutes, small corpora")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the figures to FILE")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.pairs, chosen.compared, chosen.rounds = [100_000, 400_000], 50_000, 1
    figures: Row = (
        json.loads(chosen.json.read_text()) if chosen.json and chosen.json.exists() else {}
    )
    figures["machine"] = {"cores": cores(), "python": platform.python_version()}

    def keep(part: str, rows: list[Row]) -> None:
        show(part, rows)
        figures[part] = rows
        if chosen.json:
            chosen.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")

    if chosen.only != "grow":
        with tempfile.TemporaryDirectory(prefix="kutta-prepare-") as folder:
            keep("compare", compare(Path(folder), chosen.compared, chosen.rounds, chosen.envs))
    if chosen.only != "compare":
        grown = [row for row in figures.get("grow", []) if row["pairs"] not in chosen.pairs]
        for pairs in chosen.pairs:
            with tempfile.TemporaryDirectory(prefix="kutta-prepare-") as folder:
                grown = sorted([*grown, grow(Path(folder), pairs)], key=lambda row: row["pairs"])
            keep("grow", grown)


if __name__ == "__main__":
    main()
