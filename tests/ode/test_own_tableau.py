"""Tableaux that a person wrote: what the numbers mean, and what is refused."""

from fractions import Fraction
from typing import Any

import pytest

from kutta.errors import InputError
from kutta.ode import TABLEAUX, ButcherTableau


def test_rows_and_the_whole_square_mean_the_same() -> None:
    rows = ButcherTableau.own([["1/2"], [-1, 2]], ["1/6", "2/3", "1/6"])
    whole = ButcherTableau.own([[0, 0, 0], ["1/2", 0, 0], [-1, 2, "0"]], ["1/6", "2/3", "1/6"])
    assert rows == whole
    assert (rows.a, rows.b) == (TABLEAUX["kutta3"].a, TABLEAUX["kutta3"].b)
    assert ButcherTableau.own([], [1]) == ButcherTableau.own([[0]], [1])
    assert ButcherTableau.own([[0]], [1]).a == ()


@pytest.mark.parametrize("name", TABLEAUX)
def test_the_order_of_a_written_tableau_is_computed(name: str) -> None:
    known = TABLEAUX[name]
    as_text = ButcherTableau.own(
        [[str(x) for x in row] for row in known.a], list(map(str, known.b))
    )
    assert as_text.order == known.order
    assert (as_text.a, as_text.b) == (known.a, known.b)
    assert ButcherTableau.own(known.a, known.b) == as_text


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (0.5, Fraction(1, 2)),
        (0.1, Fraction(1, 10)),
        (-0.3, Fraction(-3, 10)),
        (1e-5, Fraction(1, 100_000)),
        (2, Fraction(2)),
        ("1/3", Fraction(1, 3)),
        (" -2/6 ", Fraction(-1, 3)),
        ("+0.25", Fraction(1, 4)),
        ("7.", Fraction(7)),
        (Fraction(3, 7), Fraction(3, 7)),
    ],
)
def test_numbers_mean_exactly_what_is_written(written: Any, meant: Fraction) -> None:
    tableau = ButcherTableau.own([[written]], [0.5, "1/2"])
    assert tableau.a == ((meant,),)
    assert tableau.b == (Fraction(1, 2), Fraction(1, 2))


def test_negative_entries_and_weights_are_numbers_too() -> None:
    assert ButcherTableau.own([["-1/2"]], [2, -1]).order == 2


NOT_NUMBERS: list[Any] = [
    *(float("nan"), float("inf"), True, None, [1], {}, b"1", 1j, 10**400),
    *("", "x", "1/0", "nan", "1e99999999", "1/2/3", "1,5", "0x1", "1_0", "\u0663", "1/-2"),
    "9" * 5000,
]


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=lambda value: repr(value)[:12])
def test_what_is_not_a_number_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(InputError, match=r"a\[1\]\[0\] = .* is not a number"):
        ButcherTableau.own([[1], [value, 1]], ["1/3", "1/3", "1/3"])
    with pytest.raises(InputError, match=r"b\[1\] = .* is not a number"):
        ButcherTableau.own([[1]], ["1/2", value])


@pytest.mark.parametrize(
    ("a", "b", "complaint"),
    [
        ([0.5], [0, 1], r"a\[0\] = 0.5 of the tableau is not a list"),
        ([[1], "12"], [0, 0, 1], r"a\[1\] = '12' of the tableau is not a list"),
        ("1/2", [0, 1], "a = '1/2' of the tableau is not a list"),
        (None, [1], "a = None of the tableau is not a list"),
        ([[1]], {"b": 1}, "b = .* of the tableau is not a list"),
        ([[1]], 1, "b = 1 of the tableau is not a list"),
        ([], [], "no weights"),
        ([[1]], [], "no weights"),
        ([[]], [1], "needs rows of"),
        ([[1], [1]], [0, 0, 1], r"rows of \[1, 2\] entries .* has rows of \[1, 1\]"),
        ([[1, 2]], [0, 1], "needs rows of"),
        ([[0, 0], [1, 0], [1, 1]], [0, 1], "needs rows of"),
        ([[0, 0], [1, "1/2"]], [0, 1], "Row 2 .*strictly lower triangular"),
        ([["1/2"]], [1], "Row 1 .*strictly lower triangular"),
        ([[0, 1], [0, 0]], [0, 1], "Row 1 .*strictly lower triangular"),
        ([[1], [0, 1]], [0.333, 0.333, 0.333], 'add up to 1, not 999/1000; .* "1/3"'),
        ([[1]], [0.33, 0.66], 'add up to 1, not 99/100; write fractions such as "1/3"'),
        ([[1]], [0.5, 0.48], "add up to 1, not 49/50; .* gamma"),
        ([[1]], [1, 1], "add up to 1, not 2; .* gamma"),
        ([[1]], [0, 0], "add up to 1, not 0"),
    ],
)
def test_a_wrong_tableau_is_refused_with_what_is_wrong(a: Any, b: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        ButcherTableau.own(a, b)


def test_a_description_says_stages_and_order() -> None:
    known = {name: TABLEAUX[name].description for name in ("euler", "rk2", "kutta3", "rk4")}
    assert known == {
        "euler": "1 stage, order 1",
        "rk2": "2 stages, order 2",
        "kutta3": "3 stages, order 3",
        "rk4": "4 stages, order 4",
    }
