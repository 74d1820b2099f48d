"""What the benchmark knows of a program that translates: how to obtain its model and start it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kutta.runs import Run

TRAINED = "trained"  # in the place of a size: the weights are those of a user's run
INSIDE = Path(__file__).parents[1] / "inside" / "run_decode.py"


@dataclass(frozen=True)
class Case:
    """What is decoded: a size and the method of the encoder."""

    size: str
    method: str = "residual"

    def __str__(self) -> str:
        return f"{self.size} {self.method}"


@dataclass(frozen=True)
class Way:
    """One program's way of decoding; `workers` is how many at once, and the threads of each."""

    program: str
    case: Case
    precision: str
    workers: str = ""
    option: str = ""

    @property
    def kind(self) -> tuple[str, str, str, str, str]:
        """All but the workers, of which the best arrangement counts."""
        return self.case.size, self.case.method, self.program, self.precision, self.option

    def __str__(self) -> str:
        parts = f"{self.program} {self.precision}", self.option, self.workers
        return f"{self.case} {', '.join(filter(None, parts))}"


@dataclass(frozen=True)
class Model:
    """A run of Kutta, which all programs are given."""

    case: Case
    run: Run


@dataclass(frozen=True)
class Place:
    """Where programs get their models: a folder for this model, one for their environments."""

    work: Path
    envs: Path
    install: bool
    threads: int
    before: Path | None = None  # the source of an earlier Kutta


@dataclass(frozen=True)
class Job:
    """A process to start, and the folder with all that it reads of the model."""

    command: list[str]
    environment: dict[str, str]
    folder: Path


@dataclass(frozen=True)
class Program:
    """A program; `job` may raise Absent with a reason."""

    name: str
    version: Callable[[], str]
    ways: Callable[[Case, int], list[Way]]
    job: Callable[[Place, Model, Way], Job]


def script(python: Path, program: str, folder: Path, options: dict[str, object]) -> list[str]:
    """The command of the process that translates when it is asked."""
    return [str(python), str(INSIDE), program, str(folder), json.dumps(options)]


def arrangements(threads: int) -> list[tuple[int, int]]:
    """Workers and the threads of each: all workers, or all threads in one."""
    return sorted({(threads, 1), (1, threads)}, reverse=True)
