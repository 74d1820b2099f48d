"""Commands in children of a process that has everything loaded, so that one costs little."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kutta.cli import main

KILLED = 137
SLOW = 120  # seconds after which a command counts as endless


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (minus a signal), its output, its peak of memory in MB."""

    code: int
    out: bytes
    err: str
    memory: int
    seconds: float

    def problem(self, codes: tuple[int, ...] = (0, 2)) -> str:
        """What is wrong with it, whatever it was given; empty if it is fine."""
        if self.code not in codes:
            return f"exit code {self.code}: {self.err[-300:]}"
        if "Traceback" in self.err:
            return f"a traceback: {self.err[-300:]}"
        last = self.err.rstrip("\n").rpartition("\n")[2]
        if self.code == 2 and not last.startswith("kutta: "):
            return f"no sentence: {self.err[-300:]}"
        return ""


def in_child(act: Callable[[], object], scratch: Path, stdin: bytes = b"", at_most: float = SLOW):
    """Call a function in a child, its standard streams in files of the folder `scratch`."""
    files = [scratch / name for name in ("stdin", "stdout", "stderr")]
    files[0].write_bytes(stdin)
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        _become(files, act)
    code, memory = _wait(child, start + at_most)
    seconds = time.perf_counter() - start
    err = files[2].read_text("utf-8", "replace")
    return Ended(code, files[1].read_bytes(), err, memory, seconds)


def run(words: tuple[object, ...], place: Path) -> Callable[[], object]:
    """The command line with these words, in a folder."""

    def act() -> None:
        os.chdir(place)
        sys.argv = ["kutta", *map(str, words)]
        main()

    return act


def _become(files: list[Path], act: Callable[[], object]) -> None:
    """The child: it never returns."""
    code = 70
    try:
        os.setpgid(0, 0)
        for number, file in enumerate(files):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            handle = os.open(file, flags, 0o600)
            os.dup2(handle, number)
            os.close(handle)
        sys.stdin, sys.stdout = (
            os.fdopen(0, "r", encoding="utf-8"),
            os.fdopen(1, "w", encoding="utf-8"),
        )
        sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8")
        act()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
        finally:
            os._exit(code)


def _wait(child: int, until: float) -> tuple[int, int]:
    pause = 0.001
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), usage.ru_maxrss >> 10
        if time.perf_counter() > until:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGALRM, 0
        time.sleep(pause)
        pause = min(0.02, 2 * pause)
