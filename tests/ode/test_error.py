"""Local truncation errors, against the matrix exponential and against theory."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from kutta.errors import InputError
from kutta.ode import TABLEAUX, RungeKutta, make_solver
from kutta.ode.error import (
    NotConverged,
    Substeps,
    effective_times,
    observed_order,
    richardson,
    solve,
)


def linear(seed: int, size: int = 4) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor]:
    """A random linear field F(y) = A y with its matrix A, and a start y."""
    random = torch.Generator().manual_seed(seed)
    matrix = torch.randn(size, size, generator=random, dtype=torch.float64)
    start = torch.randn(size, generator=random, dtype=torch.float64)
    return lambda y: matrix @ y, matrix, start


@given(seed=st.integers(0, 10_000), time=st.floats(-2.0, 2.0))
@example(seed=0, time=5e-324)
def test_the_fine_solution_is_the_matrix_exponential(seed: int, time: float) -> None:
    F, matrix, y = linear(seed)
    expected = torch.linalg.matrix_exp(time * matrix) @ y
    found = solve(F, y, time, tolerance=1e-10)
    assert (found.y - expected).norm() <= 1e-7 * expected.norm().clamp(min=1.0)


def test_a_tighter_tolerance_costs_more_and_gives_more() -> None:
    F, matrix, y = linear(3)
    expected = torch.linalg.matrix_exp(matrix) @ y
    rough, fine = (solve(F, y, 1.0, tolerance) for tolerance in (1e-3, 1e-11))
    assert rough.evaluations < fine.evaluations
    assert (fine.y - expected).norm() < 1e-3 * (rough.y - expected).norm()
    assert fine.error < rough.error


def test_the_fine_solution_counts_its_evaluations() -> None:
    calls: list[int] = []

    def F(y: Tensor) -> Tensor:
        calls.append(1)
        return torch.cos(y)

    assert solve(F, torch.ones(3, dtype=torch.float64)).evaluations == len(calls)


def test_kinks_are_solved_too() -> None:
    """A ReLU has one; here the solution is known piece by piece."""
    y = torch.zeros(1, dtype=torch.float64)
    # y' = 1/2 + |y - 1/2|: y = 1 - e^-t until ln 2, where y = 1/2, then y = e^(t - ln 2) / 2.
    found = solve(lambda y: 0.5 + (y - 0.5).abs(), y, 1.0, tolerance=1e-9)
    # At a kink the estimated error says less than elsewhere.
    assert float(found.y) == pytest.approx(math.e / 4, abs=1e-6)


def test_nothing_to_solve() -> None:
    y = torch.ones(2)
    assert torch.equal(solve(lambda y: y, y, 0.0).y, y)
    assert torch.equal(solve(torch.zeros_like, y).y, y)


@pytest.mark.parametrize(
    "F",
    [
        lambda y: y * y,  # reaches infinity at t = 1/2
        lambda y: y * math.nan,
        lambda y: torch.where(y == 2.0, y, y * math.nan),  # defined at the start alone
        lambda y: torch.sin(1e7 * y),
    ],
)
def test_a_solution_that_does_not_converge_says_so(F: Callable[[Tensor], Tensor]) -> None:
    y = torch.full((1,), 2.0, dtype=torch.float64)
    with pytest.raises(NotConverged, match="came to time"):
        solve(F, y, 1.0, max_evaluations=500)


@pytest.mark.parametrize("name", sorted(TABLEAUX))
def test_the_local_error_goes_as_h_to_the_order_plus_one(name: str) -> None:
    order = TABLEAUX[name].order

    def F(y: Tensor) -> Tensor:  # not linear: a linear field forgives some methods
        return torch.stack([torch.sin(y[1]) + y[0] ** 2 / 4, torch.cos(y[0]) - y[1] / 2])

    y = torch.tensor([0.3, -0.7], dtype=torch.float64)
    errors = []
    for h in (1 / 32, 1 / 64):
        after, _ = Substeps(make_solver(name), 1, h).step(F, y)
        errors.append(float((after - solve(F, y, h, tolerance=1e-13).y).norm()))
    assert observed_order(*errors) == pytest.approx(order + 1, abs=0.2)


@pytest.mark.parametrize("name", ["euler", "rk2", "kutta3", "rk4"])
def test_richardsons_estimate_becomes_the_true_error(name: str) -> None:
    F, matrix, y = linear(11)
    order = TABLEAUX[name].order
    ratios = []
    for h in (1 / 4, 1 / 8, 1 / 16):
        once, _ = Substeps(make_solver(name), 1, h).step(F, y)
        twice, _ = Substeps(make_solver(name), 2, h).step(F, y)
        error = torch.linalg.matrix_exp(h * matrix) @ y - once
        ratios.append(float((richardson(once, twice, order) - error).norm() / error.norm()))
    assert ratios[2] < 0.1
    assert ratios[2] < 0.7 * ratios[1] < 0.7 * 0.7 * ratios[0]


@given(seed=st.integers(0, 1000), count=st.integers(1, 5), time=st.floats(0.1, 2.0))
def test_substeps_of_euler_are_a_power_of_one_step(seed: int, count: int, time: float) -> None:
    F, matrix, y = linear(seed)
    solver = Substeps(make_solver("euler"), count, time)
    step = torch.eye(4, dtype=torch.float64) + time / count * matrix
    expected = torch.linalg.matrix_power(step, count) @ y
    history = (y,)
    after, passed = solver.step(F, y, history)
    torch.testing.assert_close(after, expected)
    assert passed is history


def test_one_substep_over_time_one_is_the_step_itself_to_the_last_bit() -> None:
    y = torch.randn(5, generator=torch.Generator().manual_seed(1))
    for name in ("euler", "rk2", "rk4"):
        assert torch.equal(
            Substeps(make_solver(name)).step(torch.sin, y)[0],
            make_solver(name).step(torch.sin, y)[0],
        )


def test_substeps_count_their_evaluations() -> None:
    calls: list[int] = []

    def F(y: Tensor) -> Tensor:
        calls.append(1)
        return y

    solver = Substeps(make_solver("rk4"), 3)
    solver.step(F, torch.ones(1))
    assert len(calls) == solver.evaluations == 12


@pytest.mark.parametrize("name", ["leapfrog", "multistep", "dlcl"])
def test_a_method_that_looks_back_cannot_be_divided(name: str) -> None:
    with pytest.raises(InputError, match="looks back"):
        Substeps(make_solver(name), 2).step(torch.sin, torch.ones(1))


def test_no_substeps_are_no_step() -> None:
    with pytest.raises(InputError, match="not 0"):
        Substeps(make_solver("euler"), 0)


@pytest.mark.parametrize("name", sorted(TABLEAUX))
def test_every_tableau_covers_time_one(name: str) -> None:
    assert effective_times([make_solver(name)]) == pytest.approx([1.0])


def test_the_time_a_block_covers_is_the_sum_of_its_weights() -> None:
    learned = RungeKutta(TABLEAUX["rk2"], "learned")
    with torch.no_grad():
        learned.learned_gamma.copy_(torch.tensor([0.25, 0.5]))  # type: ignore[union-attr]
    solvers = [learned, RungeKutta(TABLEAUX["rk4"], "ones"), make_solver("polynet")]
    assert effective_times(solvers, width=3) == pytest.approx([0.75, 4.0, 2.0])


def test_the_time_of_methods_that_look_back() -> None:
    assert effective_times([make_solver("leapfrog") for _ in range(4)]) == pytest.approx([1] * 4)
    dlcl = [make_solver("dlcl", block=block) for block in range(3)]
    with torch.no_grad():
        next(dlcl[2].parameters()).copy_(torch.tensor([1.0, 2.0, 3.0]))
    # y_1 = 1 and y_2 = 1 + 1, then y_3 = 1 + 2 + 3.
    assert effective_times(dlcl) == pytest.approx([1.0, 1.0, 4.0])


def test_no_order_without_an_error() -> None:
    assert observed_order(1.0, 0.0) is None
    assert observed_order(0.8, 0.1) == pytest.approx(3.0)
