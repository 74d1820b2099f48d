"""The disk of disk.c from Python: compile it, start a process on it, say when it fails."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("disk.c")
KILL, TORN, POWER = 0, -1, -2  # effects as in disk.c; a positive number is an errno


@dataclass(frozen=True)
class Fault:
    """What happens at an operation, counted from 1, and with `lasting` at all that follow."""

    number: int
    effect: int
    lasting: bool = False


NOTHING = Fault(0, KILL)


class NoDisk(Exception):
    """Why the disk cannot be used here; one line."""


def library() -> Path:
    """The compiled disk, made where it is not there yet."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if sys.platform != "linux" or compiler is None:
        raise NoDisk("a disk that fails to order needs Linux and a C compiler")
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    made = Path(tempfile.gettempdir()) / f"kutta-disk-{os.getuid()}-{digest}.so"
    if not made.is_file():
        partial = made.with_suffix(f".{os.getpid()}")
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(partial), str(SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoDisk(f"disk.c does not compile here: {done.stderr.splitlines()[0]}")
        partial.replace(made)
    return made


def is_preloaded() -> bool:
    """Whether this process is on the disk."""
    return hasattr(ctypes.CDLL(None), "disk_arm")


def environment() -> dict[str, str]:
    """The variables of a process on the disk."""
    return os.environ | {"LD_PRELOAD": str(library()), "OMP_NUM_THREADS": "1"}


def restart(words: Sequence[str]) -> None:
    """Become the same Python program on the disk."""
    os.execve(sys.executable, [sys.executable, *words], environment())


def arm(folder: Path, report: Path, fault: Fault = NOTHING) -> None:
    """Count the operations inside a folder from now on, and let one fail."""
    names = (os.fsencode(path) for path in (os.path.realpath(folder), report))
    ctypes.CDLL(None).disk_arm(*names, fault.number, fault.effect, int(fault.lasting))


def disarm() -> int:
    """Stop; return the number of operations."""
    return int(ctypes.CDLL(None).disk_disarm())


def lose_unflushed(folder: Path, report: Path) -> None:
    """Cut the files of a folder to what was flushed, as a loss of power does."""
    if not report.is_file():
        return
    lines = (line.split() for line in report.read_text().splitlines())
    flushed = {int(inode): int(size) for inode, size in lines}
    for path in folder.rglob("*"):
        facts = path.lstat()
        if path.is_file() and facts.st_size > flushed.get(facts.st_ino, facts.st_size):
            os.truncate(path, flushed[facts.st_ino])
    report.unlink()
