"""A training process that takes turns with others: it stands still while another one is measured.

A line of its log ends an update, and the time at which we read it is the time of the update.
Between turns the process and its children are stopped by a signal: they take memory, no processor.
"""

import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from environments import Absent, clean, last_line
from peers.toolkit import Job

PROC = Path("/proc")


@dataclass(frozen=True)
class Update:
    """One update: real target tokens, and wall seconds."""

    tokens: int
    seconds: float


class Trainee:
    """A running training; `startup` is the time from its start to the end of its first update."""

    def __init__(self, job: Job, limit: float) -> None:
        self._job = job
        self._lines: queue.Queue[tuple[float, str] | None] = queue.Queue()
        self._said: deque[str] = deque(maxlen=200)  # for the reason of a failure
        self._peaks: dict[int, float] = {}
        started = time.perf_counter()
        self._process = subprocess.Popen(
            job.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            env=clean(**job.environment),
            # When the shell that started us ends, the system wakes what is stopped in our session.
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            _, at = self._next_update(limit)
        except BaseException:
            self.end()
            raise
        self.startup = at - started
        self.pause()

    def turn(self, updates: int, limit: float) -> list[Update]:
        """Continue for some updates. What is computed between the last line and the stop is lost.

        That is a millisecond or so, as is the work that was done so before this turn.
        """
        taken: list[Update] = []
        before = time.perf_counter()
        self._send(signal.SIGCONT)
        for _ in range(updates):
            tokens, at = self._next_update(limit)
            taken.append(Update(tokens, at - before))
            before = at
        self.pause()
        return taken

    def pause(self) -> None:
        """Stop all; on a busy machine it takes them a moment."""
        self._send(signal.SIGSTOP)
        until = time.perf_counter() + 1.0
        while any(map(is_running, family(self._process.pid))) and time.perf_counter() < until:
            time.sleep(0.001)

    def peak_mb(self) -> float:
        """The most memory that each process has held so far, added up over all of them."""
        for pid in family(self._process.pid):
            with suppress(OSError, StopIteration):
                self._peaks[pid] = memory_mb(pid)
        return sum(self._peaks.values())

    def end(self) -> None:
        end_family(self._process)

    def _send(self, number: signal.Signals) -> None:
        send(self._process.pid, number)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put((time.perf_counter(), line))
        self._lines.put(None)

    def _next_update(self, limit: float) -> tuple[int, float]:
        """Target tokens of the next update, and when it ended; `limit` seconds at most."""
        until = time.perf_counter() + limit
        while True:
            try:
                item = self._lines.get(timeout=max(0.0, until - time.perf_counter()))
            except queue.Empty:
                raise Absent(f"no update within {limit:.0f} s") from None
            if item is None:
                raise Absent(reason_in(list(self._said)))
            at, line = item
            self._said.append(line)
            tokens = self._job.tokens(line)
            if tokens is not None:
                return tokens, at


def reason_in(lines: list[str]) -> str:
    """The line of a log that says best why the training ended: an exception, else the last one."""
    raised = [line for line in lines if re.search(r"\b(\w*Error|\w*Exception): ", line)]
    return last_line("\n".join(raised or lines))


def family(pid: int) -> list[int]:
    """A process and all its descendants, parents first; nothing where it has ended."""
    parents: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents.setdefault(int(stat_of(entry.name)[1]), []).append(int(entry.name))
    members = [pid] if (PROC / str(pid)).exists() else []
    for member in members:
        members += parents.get(member, [])
    return members


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and its descendants."""
    for member in family(pid):
        with suppress(ProcessLookupError):
            os.kill(member, number)


def end_family(process: "subprocess.Popen[str]") -> None:
    """Kill a process and its descendants, and wait: their memory is needed for the next one."""
    members = family(process.pid)
    send(process.pid, signal.SIGKILL)
    process.wait()
    while any(map(is_alive, members)):
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process is there and has not ended yet."""
    try:
        return stat_of(pid)[0] != "Z"
    except OSError:
        return False


def is_running(pid: int) -> bool:
    """Whether a process is there and has neither been stopped nor ended."""
    try:
        return stat_of(pid)[0] not in "TtZ"
    except OSError:
        return False


def stat_of(pid: int | str) -> list[str]:
    """The words of /proc/PID/stat behind the name, which may have blanks: state, parent, ..."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def memory_mb(pid: int | str, kind: str = "VmHWM") -> float:
    """The most memory that a process has held, in MB; "VmRSS" is what it holds now."""
    status = (PROC / str(pid) / "status").read_text()
    line = next(x for x in status.splitlines() if x.startswith(kind))
    return int(line.split()[1]) * 1024 / 1e6
