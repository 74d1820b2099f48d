"""What the benchmark knows of a toolkit: how to install, prepare and start it, and read its log."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from environments import Steps

UPDATE_TOKENS = 4096  # of every update, as a toolkit counts them: most count padding too
SOURCE, TARGET = "en", "de"
DROPOUT, SMOOTHING, RATE, WARMUP = 0.1, 0.1, 0.001, 4000
ENDLESS = 1_000_000  # updates: training is ended from outside


@dataclass(frozen=True)
class Size:
    """The sizes of a Transformer with as many decoder as encoder layers."""

    name: str
    d_model: int
    ffn: int
    heads: int
    layers: int


SIZES = (Size("tiny", 128, 256, 4, 4), Size("base", 512, 2048, 8, 6))


@dataclass(frozen=True)
class Division:
    """How the tokens of an update are divided: micro-batches, in processes or Kutta's lanes."""

    micro_batches: int = 1
    processes: int = 1
    lanes: int = 1

    @property
    def tokens(self) -> int:
        return UPDATE_TOKENS // self.micro_batches

    def __str__(self) -> str:
        batches = f"{self.micro_batches} x " if self.micro_batches > 1 else ""
        processes = f", {self.processes} processes" if self.processes > 1 else ""
        lanes = f", {self.lanes} lanes" if self.lanes > 1 else ""
        return f"{batches}{self.tokens:,}{processes}{lanes}"


@dataclass(frozen=True)
class Case:
    """What is trained, and how an update is divided."""

    size: Size
    method: str
    division: Division

    def __str__(self) -> str:
        return f"{self.size.name} {self.method} {self.division}"


@dataclass(frozen=True)
class Place:
    """Where a toolkit works: its Python, the text (train, valid, vocab.txt), a scratch folder."""

    python: Path
    text: Path
    work: Path
    threads: int


@dataclass(frozen=True)
class Job:
    """A training to start; `tokens` reads the target tokens of an update off its line of the log.

    Target tokens are real ones: the end mark counts, padding does not. Other lines give None.
    """

    command: list[str]
    environment: dict[str, str]
    tokens: Callable[[str], int | None]


@dataclass(frozen=True)
class Toolkit:
    """A toolkit; `install` has one pip command after the other, the last one names its version."""

    name: str
    install: Steps
    divisions: tuple[Division, ...]
    job: Callable[[Place, Case], Job]
    prepare: Callable[[Place], None] = lambda place: None  # what is not part of its training
    methods: tuple[str, ...] = ("euler",)
    # By size; otherwise the last of the divisions.
    usual: dict[str, Division] = field(default_factory=dict[str, Division])

    @property
    def version(self) -> str:
        return self.install[-1][0].partition("==")[2]


def number_in(pattern: str, line: str) -> float | None:
    """The number that the pattern's group finds in a line."""
    found = re.search(pattern, line)
    return float(found[1].replace(",", "")) if found else None


def threaded(place: Place, processes: int = 1) -> dict[str, str]:
    """The variable that shares out the threads of a toolkit built on torch."""
    return {"OMP_NUM_THREADS": str(max(1, place.threads // processes))}
