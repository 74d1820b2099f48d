"""Explicit Runge-Kutta methods as data: exact fractions, no torch.

A method is fully described by its Butcher tableau

    0  |
    c2 | a21
    c3 | a31 a32
    ---+-------------
       | b1  b2  b3        F_i = F(y + sum_{j<i} a_ij F_j),   y' = y + sum_i b_i F_i

To add a method, add one entry to TABLEAUX; the commands, the error messages, the documentation
and the tests are generated from it.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

from kutta.errors import InputError

Number = int | str | Fraction


def _own_numbers(values: Any, where: str) -> list[Fraction]:
    """A list of numbers that a person wrote."""
    return [_own_number(x, f"{where}[{i}]") for i, x in enumerate(_own_list(values, where))]


def _own_list(value: Any, where: str) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return cast(Sequence[Any], value)
    raise InputError(
        f"{where} = {value!r} of the tableau is not a list; a is a list of rows such as "
        '[["1/2"], [0, "3/4"]], b a list of weights such as ["2/9", "1/3", "4/9"].'
    )


# What a string may say: 2, -0.5, 1/3. No exponents: "1e99999999" would take all memory.
_WRITTEN = re.compile(r"\s*[+-]?\d{1,40}(\.\d{0,40}|/\d{1,40})?\s*", re.ASCII)


def _own_number(value: Any, where: str) -> Fraction:
    """A number that a person wrote; the decimal 0.1 means exactly 1/10."""
    written = isinstance(value, str) and _WRITTEN.fullmatch(value)
    if written or isinstance(value, int | float | Fraction):
        try:
            number = Fraction(str(value))  # of its digits; nan and True have none
            float(number)  # what the solver will calculate with
            return number
        except (ValueError, ZeroDivisionError, OverflowError):
            pass
    raise InputError(f'{where} = {value!r} of the tableau is not a number; write 2, 0.5 or "1/3".')


@dataclass(frozen=True)
class ButcherTableau:
    """An explicit Runge-Kutta method of `stages` stages and classical order `order`.

    `a` holds the rows below the first, strictly lower triangular: row i has i entries. The
    tableau checks itself: shapes, consistency (sum b = 1) and the claimed order, 1 to 4 (orders
    above 4 cannot be checked here, so they cannot be claimed).
    """

    a: tuple[tuple[Fraction, ...], ...]
    b: tuple[Fraction, ...]
    order: int
    title: str = ""

    @classmethod
    def of(
        cls, a: Sequence[Sequence[Number]], b: Sequence[Number], order: int, title: str = ""
    ) -> "ButcherTableau":
        """Build from plain numbers or strings such as "1/2"."""
        rows = tuple(tuple(Fraction(x) for x in row) for row in a)
        return cls(rows, tuple(Fraction(x) for x in b), order, title)

    @classmethod
    def own(cls, a: Any, b: Any) -> "ButcherTableau":
        """A user's tableau of numbers or strings such as "1/2", its order computed.

        `a` may be the rows below the first, or the whole square with zeros on and above the
        diagonal.
        """
        weights = _own_numbers(b, "b")
        rows = [_own_numbers(row, f"a[{i}]") for i, row in enumerate(_own_list(a, "a"))]
        if not weights:
            raise InputError("The tableau has no weights: b needs a number for every stage.")
        if [len(row) for row in rows] == [len(weights)] * len(weights):
            for i, row in enumerate(rows):
                if any(row[i:]):
                    raise InputError(
                        f"Row {i + 1} of the tableau's a is not zero on and above the diagonal; "
                        "only explicit methods (strictly lower triangular) can be used."
                    )
            rows = [row[:i] for i, row in enumerate(rows) if i]
        tableau = cls.of(rows, weights, order=1, title="your own tableau")
        return replace(tableau, order=measured_order(tableau))

    def __post_init__(self) -> None:
        widths = [len(row) for row in self.a]
        if widths != list(range(1, len(self.b))):
            raise InputError(
                f"A tableau with {len(self.b)} weights needs rows of {list(range(1, len(self.b)))} "
                f"entries below the diagonal, but a has rows of {widths}."
            )
        if sum(self.b) != 1:
            # Cut after two digits or more, each is off by less than a hundredth.
            rounded = abs(sum(self.b) - 1) < Fraction(len(self.b), 100)
            advice = 'write fractions such as "1/3"' if rounded else "for other weights see gamma"
            raise InputError(
                f"The weights b = [{', '.join(map(str, self.b))}] of a tableau must add up to 1, "
                f"not {sum(self.b)}; {advice}."
            )
        if not 1 <= self.order <= 4:
            raise InputError(f"The order of a tableau is a number from 1 to 4, not {self.order}.")
        if self.order > (satisfied := measured_order(self)):
            raise InputError(
                f"This tableau claims order {self.order} but satisfies the order conditions only "
                f"up to {satisfied}."
            )

    @property
    def stages(self) -> int:
        """How often F is evaluated in one step."""
        return len(self.b)

    @property
    def c(self) -> tuple[Fraction, ...]:
        """The times of the stages, c_i = sum_j a_ij."""
        return (Fraction(0), *(sum(row, Fraction(0)) for row in self.a))

    @property
    def description(self) -> str:
        """One line, such as "3 stages, order 3"."""
        # Conditions above order 4 are not checked, but no explicit method of fewer than six
        # stages can meet them (Butcher), so only from six stages on is 4 a lower bound.
        beyond = " or higher" if self.order == 4 and self.stages >= 6 else ""
        return f"{self.stages} stage{'s' * (self.stages > 1)}, order {self.order}{beyond}"


def order_conditions(tableau: ButcherTableau) -> dict[int, list[tuple[Fraction, Fraction]]]:
    """The classical conditions as (left side, right side), one list per order from 1 to 4."""
    c = tableau.c

    def dot(*vectors: Sequence[Fraction]) -> Fraction:
        """sum_i of the products of the i-th entries; a row of a ends at its diagonal."""
        products = (math.prod(each, start=Fraction(1)) for each in zip(*vectors, strict=False))
        return sum(products, Fraction(0))

    def a_times(v: Sequence[Fraction]) -> list[Fraction]:
        return [dot(row, v) for row in ((), *tableau.a)]

    ac, acc = a_times(c), a_times([x * x for x in c])
    # sum_i b_i u_i v_i ... = 1 / n, as (u, v, ...) and n: one for each rooted tree.
    trees: dict[int, list[tuple[tuple[Sequence[Fraction], ...], int]]] = {
        1: [((), 1)],
        2: [((c,), 2)],
        3: [((c, c), 3), ((ac,), 6)],
        4: [((c, c, c), 4), ((c, ac), 8), ((acc,), 12), ((a_times(ac),), 24)],
    }
    return {
        order: [(dot(tableau.b, *vectors), Fraction(1, n)) for vectors, n in conditions]
        for order, conditions in trees.items()
    }


def measured_order(tableau: ButcherTableau) -> int:
    """The highest order (at most 4) whose conditions, and all lower ones, hold exactly."""
    for order, conditions in order_conditions(tableau).items():
        if any(left != right for left, right in conditions):
            return order - 1
    return 4


_of = ButcherTableau.of

TABLEAUX: dict[str, ButcherTableau] = {
    "euler": _of([], [1], order=1, title="the residual block"),
    "midpoint": _of([["1/2"]], [0, 1], order=2, title="explicit midpoint"),
    "rk2": _of([[1]], ["1/2", "1/2"], order=2, title="improved Euler (Heun), the paper's RK2"),
    "ralston2": _of([["2/3"]], ["1/4", "3/4"], order=2, title="Ralston, least error bound"),
    "heun3": _of([["1/3"], [0, "2/3"]], ["1/4", 0, "3/4"], order=3, title="Heun's third order"),
    "kutta3": _of([["1/2"], [-1, 2]], ["1/6", "2/3", "1/6"], order=3, title="Kutta's third order"),
    "ralston3": _of([["1/2"], [0, "3/4"]], ["2/9", "1/3", "4/9"], order=3, title="Ralston, third"),
    "ssprk3": _of([[1], ["1/4", "1/4"]], ["1/6", "1/6", "2/3"], order=3, title="Shu-Osher"),
    "rk4": _of(
        [["1/2"], [0, "1/2"], [0, 0, 1]],
        ["1/6", "2/6", "2/6", "1/6"],
        order=4,
        title="classical Runge-Kutta, the paper's RK4",
    ),
    "three-eighths": _of(
        [["1/3"], ["-1/3", 1], [1, -1, 1]],
        ["1/8", "3/8", "3/8", "1/8"],
        order=4,
        title="Kutta's 3/8 rule",
    ),
}
