"""Rounds in which every way of training takes its turn, so that all see the same minutes.

Machines of our days are uneven: what is compared has to be measured side by side.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from environments import Absent
from peers.toolkit import Case, Job, Toolkit
from trainee import Trainee, Update

KEPT = 0.75  # of the machine's memory may stay with trainings that wait for their next turn


@dataclass(frozen=True)
class Effort:
    """How much is measured: updates of a new process that do not count, then turns in rounds.

    Between its turns a process waits, or it is started again for each of them: then all methods of
    a toolkit see the same batches in every round, and none shares the memory with others.
    """

    warmup: int
    updates: int
    rounds: int
    waits: bool = True
    until: float = float("inf")  # time.monotonic() at which to stop, for --quick
    patience: float = 300.0  # seconds for one update

    @property
    def left(self) -> float:
        return min(self.patience, self.until - time.monotonic())


@dataclass
class Entrant:
    """One toolkit's way of training, and what was measured of it, by round."""

    toolkit: Toolkit
    case: Case
    job: Job
    turns: dict[int, list[Update]] = field(default_factory=dict[int, list[Update]])
    startups: list[float] = field(default_factory=list[float])
    peak_mb: float = 0.0
    absent: str = ""
    trainee: Trainee | None = None

    def take_turn(self, number: int, effort: Effort) -> None:
        """Some updates of a warm process; it is started where it does not wait already."""
        if effort.left <= 0:
            raise Absent("no time was left")
        if self.trainee is None:
            self.trainee = Trainee(self.job, effort.left)
            self.startups.append(self.trainee.startup)
            self.trainee.turn(effort.warmup - 1, effort.left)  # its first update is made
        self.turns[number] = self.trainee.turn(effort.updates, effort.left)
        self.peak_mb = max(self.peak_mb, self.trainee.peak_mb())

    def end(self) -> None:
        if self.trainee is not None:
            self.trainee.end()
        self.trainee = None

    @property
    def rates(self) -> dict[int, float]:
        """Target tokens per second, for each round."""
        return {
            number: sum(u.tokens for u in turn) / sum(u.seconds for u in turn)
            for number, turn in self.turns.items()
        }

    @property
    def tokens_per_update(self) -> float:
        updates = [update.tokens for turn in self.turns.values() for update in turn]
        return sum(updates) / len(updates)

    @property
    def name(self) -> str:
        return f"{self.toolkit.name} {self.case}"


def contest(
    entrants: list[Entrant],
    effort: Effort,
    gemm: Callable[[], float],
    say: Callable[[str], None],
    first: int = 0,
) -> dict[int, float]:
    """Let the entrants take turns; return the machine's matrix-product rate in each round.

    Of those that may wait, as many do as fit into memory together. Rounds count from `first`, so
    that some may continue after others have had their last turn.
    """
    rates: dict[int, float] = {}
    room = KEPT * total_mb()
    try:
        for number in range(first, first + effort.rounds):
            if number > first and effort.left <= 0:
                break
            samples: list[float] = []
            # There and back, so that nobody is always the first.
            for entrant in running(entrants)[:: -1 if number % 2 else 1]:
                samples.append(gemm())
                try:
                    entrant.take_turn(number, effort)
                except Absent as reason:
                    entrant.end()
                    if not entrant.turns:  # one that was measured before is out of time, not absent
                        entrant.absent = str(reason)
                        say(f"{entrant.name}: absent, {reason}")
                    continue
                say(f"round {number + 1}: {entrant.name}: {entrant.rates[number]:,.0f} tokens/s")
                if not effort.waits or sum(e.peak_mb for e in entrants if e.trainee) > room:
                    entrant.end()
            if samples:
                rates[number] = median(samples)
    finally:
        for entrant in entrants:
            entrant.end()
    return rates


def running(entrants: Iterable[Entrant]) -> list[Entrant]:
    return [entrant for entrant in entrants if not entrant.absent]


def total_mb() -> float:
    """The memory of this machine."""
    line = Path("/proc/meminfo").read_text().splitlines()[0]
    return int(line.split()[1]) * 1024 / 1e6
