"""Planted bugs: a mechanism is switched off, and a part of the suite has to notice."""

import errno
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import kutta.commands.translate
import kutta.data.tokenizer
import kutta.files
import kutta.integrity
import kutta.parsing
import kutta.runs.run
import kutta.runtime.directory
import kutta.training.run
from tests.faults import flips, fuzz, hostile, scripts
from tests.faults.disk import KILL, POWER, Fault
from tests.faults.interrupt import Case, Stage, try_all
from tests.faults.scenes import SCENES
from tests.faults.tally import Tally

Try = Callable[[Path, Random, Tally], None]


@dataclass(frozen=True)
class Plant:
    """A mechanism, how it is switched off in this process, and what has to notice."""

    mechanism: str
    part: str
    switch_off: Callable[[], None]
    notices: Try


def _set(name: str, value: Any, *modules: Any) -> None:
    for module in modules:
        assert hasattr(module, name), f"{module} has no {name}"
        setattr(module, name, value)


# ---- mechanisms ---------------------------------------------------------------------------------


def _remove_before_replacing() -> None:
    def replace(temporary: Path, path: Path) -> None:
        kutta.files.remove(path)
        os.replace(temporary, path)

    _set("_replace", replace, kutta.files)


def _never_flush() -> None:
    _set("_sync", lambda path: None, kutta.files)


def _ignore_errors() -> None:
    @contextmanager
    def writing(path: Path) -> Generator[None]:
        with suppress(OSError):
            yield

    _set("writing", writing, kutta.files)


def _forget_the_position() -> None:
    resume = kutta.training.run.resume

    def forgetful(run: Path, trainer: Any) -> Any:
        found = resume(run, trainer)
        trainer.position = 0
        return found

    _set("resume", forgetful, kutta.training.run)


def _trust_all_files() -> None:
    _set("_matches", lambda *_: True, kutta.integrity)
    kutta.integrity.Blocks.check = lambda *_: None  # type: ignore[method-assign]


def _follow_links() -> None:
    _set("check_contained", lambda folder: None, kutta.runs.run, kutta.runtime.directory)


def _nest_without_limit() -> None:
    _set("_check_depth", lambda *_: None, kutta.parsing)


def _split_as_python_does() -> None:
    def read(stream: Any, name: str) -> Iterator[str]:
        yield from stream.read().decode().splitlines()

    _set("read_stream", read, kutta.commands.translate)


# ---- what has to notice -------------------------------------------------------------------------


def _disturbing(name: str, effect: int) -> Try:
    """Faults at operations of one command, in random order."""

    def attempt(home: Path, draw: Random, tally: Tally) -> None:
        (stage,) = [Stage(scene, home) for scene in SCENES if scene.name == name]
        numbers = list(range(1, stage.undisturbed[0] + 1))
        draw.shuffle(numbers)
        cases: Iterator[Case] = ((stage, (Fault(n, effect),)) for n in numbers)
        try_all(cases, tally)

    return attempt


def _reading(home: Path, draw: Random, tally: Tally) -> None:
    fuzz.try_readers(home, str(draw.random()), tally)


PLANTS = (
    Plant("old files stay until they are replaced", "kills", _remove_before_replacing,
          _disturbing("average", KILL)),
    Plant("files are flushed before they are renamed", "kills", _never_flush,
          _disturbing("average", POWER)),
    Plant("the position in the data is restored", "kills", _forget_the_position,
          _disturbing("train", KILL)),
    Plant("errors of the disk are reported", "errors", _ignore_errors,
          _disturbing("average", errno.ENOSPC)),
    Plant("checksums are checked", "flips", _trust_all_files, flips.try_flips),
    Plant("links are not followed", "directories", _follow_links, hostile.try_directories),
    Plant("nesting has a limit", "readers", _nest_without_limit, _reading),
    Plant("only a newline ends a line", "text", _split_as_python_does, scripts.try_text),
)  # fmt: skip


def is_noticed(plant: Plant, home: Path, seed: int, seconds: float) -> bool:
    """Switch the mechanism off, for the rest of this process; whether a problem is found."""
    plant.switch_off()
    tally = _UntilTheFirst(seconds)
    plant.notices(home, Random(seed), tally)
    return bool(tally.problems)


@dataclass
class _UntilTheFirst(Tally):
    """A tally that is over when something is wrong."""

    def is_over(self) -> bool:
        return bool(self.problems) or super().is_over()
