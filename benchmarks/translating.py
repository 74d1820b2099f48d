"""Programs that translate in turns: each in a process of its own that stands still between turns.

In a round every way of decoding takes a turn, so that all see the same minutes of the machine.
"""

import json
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from contest import KEPT, total_mb
from decoders.decoder import Job, Way
from environments import Absent, clean
from invented import Sentences
from trainee import end_family, family, memory_mb, reason_in, send

BEAMS = (4, 1)
LENGTH = 25  # tokens of every translation, with its end


@dataclass(frozen=True)
class Effort:
    """How much is measured: sentences, rounds, and when to stop (time.monotonic())."""

    rounds: int
    sentences: int
    single: int
    starts: int = 0  # of each, after the rounds
    tries: bool = False  # several batch sizes, where a program does not choose by itself
    until: float = float("inf")
    patience: float = 300.0  # seconds for one answer

    @property
    def left(self) -> float:
        return min(self.patience, self.until - time.monotonic())


class Process:
    """A running program; `startup` is the time from its start to its first translation."""

    def __init__(
        self, job: Job, sentences: list[list[str]], limit: float, tries: bool = False
    ) -> None:
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._said: deque[str] = deque(maxlen=200)
        started = time.perf_counter()
        self._process = subprocess.Popen(
            job.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=clean() | job.environment,
            start_new_session=True,
        )
        threading.Thread(target=self._hear, daemon=True).start()
        self._overheard = threading.Thread(target=self._overhear, daemon=True)
        self._overheard.start()
        try:
            self.ask({"sentences": sentences, "tries": tries}, limit)
        except BaseException:
            self.end()
            raise
        self.startup = time.perf_counter() - started

    def ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """The answer to a request, within `limit` seconds."""
        self._send(signal.SIGCONT)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        try:
            answer = self._answers.get(timeout=max(0.0, limit))
        except queue.Empty:
            raise Absent(f"no answer within {limit:.0f} s") from None
        if answer is None:
            self._process.wait()
            self._overheard.join()
            raise Absent(reason_in(list(self._said)))
        return json.loads(answer)

    def pause(self) -> None:
        """Stop it and its children, which may have threads that wait for work."""
        self._send(signal.SIGSTOP)

    def peak_mb(self) -> float:
        """The most memory that each of its processes has held, added up."""
        peaks: list[float] = []
        for pid in family(self._process.pid):
            with suppress(OSError, StopIteration):
                peaks.append(memory_mb(pid))
        return sum(peaks)

    def end(self) -> None:
        end_family(self._process)

    def _send(self, number: signal.Signals) -> None:
        send(self._process.pid, number)

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _overhear(self) -> None:
        assert self._process.stderr is not None
        self._said.extend(self._process.stderr)


@dataclass
class Entrant:
    """One way of decoding, and what was measured of it by round."""

    way: Way
    version: str
    job: Job
    rates: dict[int, dict[int, float]] = field(  # tokens a second by beam and round
        default_factory=lambda: {beam: {} for beam in BEAMS}
    )
    waits: dict[int, list[float]] = field(default_factory=dict[int, list[float]])  # seconds
    settings: dict[int, Any] = field(default_factory=dict[int, Any])  # by beam, as it chose
    startups: list[float] = field(default_factory=list[float])
    peak_mb: float = 0.0
    absent: str = ""
    process: Process | None = None

    def take_turn(self, number: int, effort: Effort, sentences: Sentences) -> None:
        """All sentences with each beam, then some one by one."""
        if effort.left <= 0:
            raise Absent("no time was left")
        if self.process is None:
            self.process = Process(self.job, sentences.many, effort.left, effort.tries)
            self.startups.append(self.process.startup)
        for beam in BEAMS:
            request = {"task": "throughput", "beam": beam, "length": LENGTH}
            answer = self.process.ask(request, effort.left)
            self.rates[beam][number] = answer["tokens"] / answer["seconds"]
            self.settings[beam] = answer["setting"]
        request = {"task": "latency", "beam": BEAMS[0], "length": LENGTH}
        answer = self.process.ask(request | {"sentences": sentences.single}, effort.left)
        self.waits[number] = answer["seconds"]
        self.peak_mb = max(self.peak_mb, self.process.peak_mb())
        self.process.pause()

    def start(self, effort: Effort, sentences: Sentences) -> None:
        """Start it once more, for the time that takes."""
        process = Process(self.job, sentences.many[:1], effort.left)
        self.startups.append(process.startup)
        process.end()

    def end(self) -> None:
        if self.process is not None:
            self.process.end()
        self.process = None

    @property
    def whole(self) -> list[int]:
        """The rounds in which it was measured to the end."""
        return sorted(self.waits)


def rounds(
    entrants: list[Entrant], effort: Effort, sentences: Sentences, say: Callable[[str], None]
) -> None:
    """Let all take turns; what does not fit into memory beside others is started again."""
    room = KEPT * total_mb()
    try:
        for number in range(effort.rounds):
            if number and effort.left <= 0:
                break
            # There and back, so that nobody is always the first.
            for entrant in [e for e in entrants if not e.absent][:: -1 if number % 2 else 1]:
                try:
                    entrant.take_turn(number, effort, sentences)
                except Absent as reason:
                    entrant.end()
                    if not entrant.whole:  # one that was measured before is out of time, not absent
                        entrant.absent = str(reason)
                        say(f"{entrant.way}: absent, {reason}")
                    continue
                fast = ", ".join(f"{entrant.rates[b][number]:,.0f}" for b in BEAMS)
                slow = 1000 * median(entrant.waits[number])
                say(f"round {number + 1}: {entrant.way}: {fast} tokens/s, {slow:.0f} ms")
                if sum(e.peak_mb for e in entrants if e.process) > room:
                    entrant.end()
    finally:
        for entrant in entrants:
            entrant.end()
    for entrant in [e for e in entrants if e.whole for _ in range(effort.starts)]:
        with suppress(Absent):  # it did start before
            entrant.start(effort, sentences)
