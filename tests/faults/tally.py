"""What a part of the suite has tried and found."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Tally:
    """Counts of what was tried, by group, and what was wrong; it is over at a time or a count."""

    seconds: float
    most: int = 1_000_000_000
    tried: Counter[str] = field(default_factory=Counter[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    problems: list[str] = field(default_factory=list[str])
    start: float = field(default_factory=time.perf_counter)

    def add(self, group: str, problem: str = "", what: str = "", count: int = 1) -> None:
        """Count what was tried; a problem is kept with what led to it."""
        self.tried[group] += count
        if problem:
            self.problems.append(f"{group}, {what}: {problem}")

    def is_over(self) -> bool:
        spent = time.perf_counter() - self.start
        return spent > self.seconds or self.tried.total() >= self.most

    def to_dict(self) -> dict[str, Any]:
        return {
            "tried": self.tried.total(),
            "seconds": round(time.perf_counter() - self.start),
            "groups": dict(sorted(self.tried.items())),
            "outcomes": dict(sorted(self.outcomes.items())),
            "problems": self.problems,
        }
