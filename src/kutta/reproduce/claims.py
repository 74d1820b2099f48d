"""The paper's claims as comparisons between cells, and a verdict on each from our numbers.

A cell is named "row/column". A row without a column stands for all of its columns, each compared
within itself:

    [[claims]]
    says = "One layer of RK2 is better than two residual layers"
    cells = ["rk2/1"]
    are = "better"        # better, higher, lower or near
    than = ["residual/2"]
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from kutta.config import Section
from kutta.config.mistakes import suggest

Name = tuple[str, str]  # row, column
Relation = Literal["better", "higher", "lower", "near"]
Word = Literal["holds", "does not hold", "undecided", "not run"]


class Claim(Section):
    """Each of `cells` has this relation to each of `than`; `within` is the tolerance of near."""

    says: str = Field(min_length=1)
    cells: list[str] = Field(min_length=1)
    are: Relation
    than: list[str] = Field(min_length=1)
    within: float = Field(default=0.0, ge=0.0)

    def pairs(self, cells: Collection[Name]) -> list[tuple[Name, Name]]:
        """The cells to compare."""
        return [
            pair for one in self.cells for other in self.than for pair in _pairs(one, other, cells)
        ]

    def mistakes_of(self, cells: Collection[Name], better: str) -> Iterator[str]:
        """Error messages for a claim that does not work in a table of these cells."""
        known = {*("/".join(cell) for cell in cells), *(row for row, _ in cells)}
        for name in (*self.cells, *self.than):
            if name not in known:
                yield f"there is no cell {name!r}{suggest(name, sorted(known))}"
        if not self.pairs(cells):
            yield "none of its rows share a column, so nothing is compared"
        if self.are == "better" and better == "neither":
            yield "better = 'neither' here, so write are = 'higher' or 'lower'"
        if (self.are == "near") != (self.within > 0):
            yield "are = 'near' needs within = 0.3 (the tolerance), and within needs are = 'near'"


def _pairs(one: str, other: str, cells: Collection[Name]) -> Iterator[tuple[Name, Name]]:
    """The cells that two names compare: within each column if a name has none."""
    (row, _, column), (rival, _, place) = one.partition("/"), other.partition("/")
    columns = [c for c in dict.fromkeys(c for _, c in cells) if column in ("", c)]
    for here in columns:
        there = place or here
        if (row, here) in cells and (rival, there) in cells and (row, here) != (rival, there):
            yield (row, here), (rival, there)


@dataclass(frozen=True)
class Measured:
    """The mean of a cell's scores, and their deviation over n seeds (None for one seed)."""

    mean: float
    deviation: float | None
    seeds: int


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, and the comparison that decides it."""

    says: str
    word: Word
    why: str

    def to_dict(self) -> dict[str, Any]:
        return {"says": self.says, "verdict": self.word, "why": self.why}


def judge(
    claim: Claim,
    cells: Collection[Name],
    measured: Callable[[Name], Measured | None],
    lower_is_better: bool,
) -> Verdict:
    """The verdict on a claim: it holds if all of its comparisons do."""
    found = [
        _compare(claim, one, other, measured, lower_is_better) for one, other in claim.pairs(cells)
    ]
    word = _worst([word for word, _ in found])
    why = "; ".join(why for each, why in found if each == word and why)
    return Verdict(claim.says, word, why)


def _worst(words: Sequence[Word]) -> Word:
    """A failed comparison refutes a claim; otherwise a missing or undecided one decides."""
    order: tuple[Word, ...] = ("does not hold", "not run", "undecided", "holds")
    return min(words, key=order.index)


def _compare(
    claim: Claim,
    one: Name,
    other: Name,
    measured: Callable[[Name], Measured | None],
    lower_is_better: bool,
) -> tuple[Word, str]:
    a, b = measured(one), measured(other)
    if a is None or b is None:
        return "not run", ""
    difference = a.mean - b.mean
    noise = _noise(a, b)
    lower = claim.are == "lower" or (claim.are == "better" and lower_is_better)
    gain = claim.within - abs(difference) if claim.are == "near" else difference
    gain = -gain if lower else gain
    word: Word = "undecided" if abs(gain) <= noise else "holds" if gain > 0 else "does not hold"
    seeds = "one seed" if min(a.seeds, b.seeds) == 1 else f"deviation {noise:.2f}"
    why = f"{'/'.join(one)} {a.mean:.2f}, {'/'.join(other)} {b.mean:.2f} ({seeds})"
    return word, why


def _noise(a: Measured, b: Measured) -> float:
    """The standard deviation of the difference of two runs, over seeds; 0 for one seed."""
    return math.hypot(a.deviation or 0.0, b.deviation or 0.0)
