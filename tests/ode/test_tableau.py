"""Tableaux: the order conditions of Butcher's theory, exactly, generated from rooted trees.

A rooted tree is written as the sorted tuple of its root's subtrees; () is a single vertex. For
every tree t with n vertices a method of order >= n satisfies sum_i b_i Phi_i(t) = 1 / gamma(t).
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.errors import InputError
from kutta.ode import TABLEAUX, ButcherTableau, measured_order, order_conditions

Tree = tuple[Any, ...]


def with_one_leaf_more(tree: Tree) -> Iterator[Tree]:
    """The trees that grow from this one by a leaf at any of its vertices."""
    yield tuple(sorted((*tree, ())))
    for i, child in enumerate(tree):
        for grown in with_one_leaf_more(child):
            yield tuple(sorted((*tree[:i], grown, *tree[i + 1 :])))


@cache
def rooted_trees(vertices: int) -> frozenset[Tree]:
    """All rooted trees with so many vertices, each once."""
    if vertices == 1:
        return frozenset({()})
    return frozenset(
        grown for tree in rooted_trees(vertices - 1) for grown in with_one_leaf_more(tree)
    )


def vertices(tree: Tree) -> int:
    return 1 + sum(vertices(child) for child in tree)


def density(tree: Tree) -> int:
    """gamma(t): the number of vertices times the densities of the subtrees."""
    product = vertices(tree)
    for child in tree:
        product *= density(child)
    return product


def square(tableau: ButcherTableau) -> list[list[Fraction]]:
    """The full matrix A with its zeros."""
    s = tableau.stages
    return [list(row) + [Fraction(0)] * (s - len(row)) for row in ((), *tableau.a)]


def inner_weights(a: list[list[Fraction]], tree: Tree) -> list[Fraction]:
    """Phi_i(t): product over the root's subtrees of sum_j a_ij Phi_j(subtree)."""
    stages = range(len(a))
    result = [Fraction(1)] * len(a)
    for child in tree:
        inner = inner_weights(a, child)
        result = [result[i] * sum(a[i][j] * inner[j] for j in stages) for i in stages]
    return result


def residuals(tableau: ButcherTableau, order: int) -> list[Fraction]:
    """sum_i b_i Phi_i(t) - 1 / gamma(t) for every tree of this order."""
    a = square(tableau)
    return [
        sum(b * phi for b, phi in zip(tableau.b, inner_weights(a, tree), strict=True))
        - Fraction(1, density(tree))
        for tree in rooted_trees(order)
    ]


def true_order(tableau: ButcherTableau, limit: int = 6) -> int:
    """The highest order (at most limit - 1) whose conditions and all lower ones hold."""
    return next((n - 1 for n in range(1, limit) if any(residuals(tableau, n))), limit - 1)


@st.composite
def consistent_tableaux(draw: st.DrawFn, most_stages: int = 4) -> ButcherTableau:
    """Explicit tableaux of small fractions whose weights add up to 1."""
    number = st.fractions(-2, 2, max_denominator=6)
    stages = draw(st.integers(1, most_stages))
    a = [[draw(number) for _ in range(i)] for i in range(1, stages)]
    b = [draw(number) for _ in range(stages - 1)]
    return ButcherTableau.of(a, [*b, 1 - sum(b)], order=1)


def test_the_number_of_rooted_trees_is_the_known_sequence() -> None:
    assert [len(rooted_trees(n)) for n in range(1, 8)] == [1, 1, 2, 4, 9, 20, 48]


def test_densities_of_the_bushy_and_the_tall_tree() -> None:
    assert density(((), (), ())) == 4
    assert density(((((),),),)) == 24


def test_the_methods_asked_for_are_there() -> None:
    wanted = ["euler", "midpoint", "rk2", "ralston2", "heun3", "kutta3", "rk4", "three-eighths"]
    assert set(wanted) <= set(TABLEAUX)


@pytest.mark.parametrize("name", TABLEAUX)
def test_order_conditions_hold_up_to_the_claimed_order_and_not_beyond(name: str) -> None:
    tableau = TABLEAUX[name]
    for n in range(1, tableau.order + 1):
        assert not any(residuals(tableau, n)), f"{name} misses a condition of order {n}"
    assert any(residuals(tableau, tableau.order + 1)), f"{name} is of higher order than it claims"


@pytest.mark.parametrize("name", TABLEAUX)
def test_weights_are_exact_fractions_and_consistent(name: str) -> None:
    tableau = TABLEAUX[name]
    assert all(isinstance(x, Fraction) for row in (*tableau.a, tableau.b) for x in row)
    assert sum(tableau.b) == 1
    assert tableau.c == tuple(sum(row) for row in square(tableau))
    assert tableau.stages == len(tableau.b) == len(tableau.a) + 1
    assert tableau.title


def test_the_papers_methods_are_the_papers() -> None:
    half, sixth = Fraction(1, 2), Fraction(1, 6)
    assert TABLEAUX["rk2"].a == ((1,),)
    assert TABLEAUX["rk2"].b == (half, half)
    assert TABLEAUX["rk4"].a == ((half,), (0, half), (0, 0, 1))
    assert TABLEAUX["rk4"].b == (sixth, 2 * sixth, 2 * sixth, sixth)


@settings(deadline=None)
@given(consistent_tableaux())
def test_its_own_conditions_are_those_of_the_rooted_trees(tableau: ButcherTableau) -> None:
    own = order_conditions(tableau)
    assert sorted(own) == [1, 2, 3, 4]
    for n, pairs in own.items():
        assert sorted(left - right for left, right in pairs) == sorted(residuals(tableau, n))
        assert sorted(right for _, right in pairs) == sorted(
            Fraction(1, density(tree)) for tree in rooted_trees(n)
        )
    assert measured_order(tableau) == min(true_order(tableau), 4)


@settings(deadline=None)
@given(st.fractions(-3, 3, max_denominator=20).filter(bool))
def test_every_method_of_the_two_stage_family_measures_order_two(c: Fraction) -> None:
    b = Fraction(1, 2) / c
    assert measured_order(ButcherTableau.of([[c]], [1 - b, b], order=2)) == 2


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([], ["1/2", "1/2"]),  # a row is missing
        ([[1], [1]], ["1/3", "1/3", "1/3"]),  # the second row is too short
        ([[1, 0]], ["1/2", "1/2"]),  # implicit: an entry on the diagonal
        ([[0], [1, 0]], ["1/2", "1/2"]),  # a row too many
        ([], []),  # no stage at all
    ],
)
def test_wrong_row_lengths_are_refused(a: list[list[int]], b: list[str]) -> None:
    with pytest.raises(InputError):
        ButcherTableau.of(a, b, order=1)


@pytest.mark.parametrize("b", [[1, 1], ["1/2", "1/3"], [0, 0], ["1/3", "333333/500000"]])
def test_weights_that_do_not_add_up_to_one_are_refused(b: list[int | str]) -> None:
    with pytest.raises(InputError, match="add up to 1"):
        ButcherTableau.of([[1]], b, order=1)


@pytest.mark.parametrize("name", TABLEAUX)
def test_an_overclaimed_order_is_refused(name: str) -> None:
    tableau = TABLEAUX[name]
    with pytest.raises(InputError, match="order"):
        ButcherTableau(tableau.a, tableau.b, tableau.order + 1)


def test_a_wrong_stage_of_a_third_order_method_is_noticed() -> None:
    """Kutta's third order with a sign lost: consistent, but only of order 1."""
    weights = ["1/6", "2/3", "1/6"]
    assert measured_order(ButcherTableau.of([["1/2"], [1, 2]], weights, order=1)) == 1
    with pytest.raises(InputError):
        ButcherTableau.of([["1/2"], [1, 2]], weights, order=3)


# Tableaux that a person wrote (what else is asked of them: test_own_tableau.py)


@settings(deadline=None)
@given(consistent_tableaux())
def test_the_order_of_any_written_tableau_is_that_of_the_rooted_trees(
    tableau: ButcherTableau,
) -> None:
    whole = [[str(x) for x in row] for row in square(tableau)]
    assert ButcherTableau.own(whole, tableau.b).order == min(true_order(tableau), 4)


def test_orders_above_four_are_not_denied() -> None:
    """Fehlberg's two methods of six stages, of order 5 and 4: both are said to be 4 or higher."""
    a = [
        ["1/4"],
        ["3/32", "9/32"],
        ["1932/2197", "-7200/2197", "7296/2197"],
        ["439/216", -8, "3680/513", "-845/4104"],
        ["-8/27", 2, "-3544/2565", "1859/4104", "-11/40"],
    ]
    fifth = ButcherTableau.own(a, ["16/135", 0, "6656/12825", "28561/56430", "-9/50", "2/55"])
    fourth = ButcherTableau.own(a, ["25/216", 0, "1408/2565", "2197/4104", "-1/5", 0])
    assert (true_order(fifth), true_order(fourth)) == (5, 4)
    assert fifth.description == fourth.description == "6 stages, order 4 or higher"


def test_a_rounded_third_costs_the_order() -> None:
    """So the printed order tells: Heun's third order with 0.333 in a is of order 1."""
    rounded = ButcherTableau.own([[0.333], [0, "2/3"]], ["1/4", 0, "3/4"])
    assert rounded.order == true_order(rounded) < 3
