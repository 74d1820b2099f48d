"""Faults to order: flipped bits, a process that ends at a given file operation, failing disks."""

import errno
import os
import random
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = (
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
)
_DELETES = ("os.remove", "os.rmdir")


class Killed(BaseException):
    """As if the process had ended here: nothing on disk changes any more."""


def flip(path: Path, bit: int) -> None:
    """Flip one bit of a file; twice is none."""
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def some_bits(path: Path, count: int, seed: int = 1) -> Iterator[int]:
    """Numbers of bits of a file: the first, the last and random ones."""
    last = 8 * path.stat().st_size - 1
    draw = random.Random(f"{seed} {path.name}")
    yield from [0, last, *(draw.randint(0, last) for _ in range(count))][:count]


@dataclass
class Operations:
    """The file operations of a block of code inside a folder, and what happens at one of them."""

    folder: Path
    fails: Callable[["Operations", str], None] = lambda *_: None
    count: int = 0
    active: bool = False

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called by the interpreter before each operation."""
        if self.active and self._changes(event, arguments):
            self.count += 1
            self.fails(self, event)

    def _changes(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if event == "ctypes.dlsym":
            return arguments[1] == "renameat2"
        if event == "open":
            path, _, flags = arguments
            if not isinstance(path, str | bytes | os.PathLike) or not flags & _WRITING:
                return False
        elif event in _CHANGES:
            path = arguments[0]
        else:
            return False
        # shutil removes by names relative to an open folder.
        name = os.fsdecode(path) if not isinstance(path, int) else ""
        return not os.path.isabs(name) or Path(name).is_relative_to(self.folder)


_LISTENERS: list[Operations] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    for listener in _LISTENERS:
        listener.hear(event, arguments)


@contextmanager
def operations(
    folder: Path, fails: Callable[[Operations, str], None] = lambda *_: None
) -> Generator[Operations]:
    """Count the operations that change files in a folder; `fails` may raise at any of them."""
    if not getattr(sys, "_kutta_faults", False):
        sys.addaudithook(_hear)  # it stays until the interpreter ends
        sys._kutta_faults = True  # type: ignore[attr-defined]
    listener = Operations(folder, fails)
    _LISTENERS.append(listener)
    listener.active = True
    try:
        yield listener
    finally:
        listener.active = False
        _LISTENERS.remove(listener)


def killed_at(number: int) -> Callable[[Operations, str], None]:
    """End the process before operation `number`, counted from 1, and all that follow."""

    def fail(seen: Operations, _: str) -> None:
        if seen.count >= number:
            raise Killed

    return fail


def refused_from(number: int, code: int) -> Callable[[Operations, str], None]:
    """Let operation `number` and all that follow fail with an error of the system.

    A full disk still deletes; a read-only or broken one does not.
    """

    def fail(seen: Operations, event: str) -> None:
        if seen.count >= number and not (code == errno.ENOSPC and event in _DELETES):
            raise OSError(code, os.strerror(code))

    return fail
