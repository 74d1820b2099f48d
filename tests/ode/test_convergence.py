"""The order of every method, measured: error against step size on ODEs with known solutions.

A block's F carries its own step size, so integrating y' = f(y) to time T in n blocks means
F = (T / n) f. The error is the largest along the way: at a single time it may change its sign
and look smaller than it is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from kutta.ode import METHODS, TABLEAUX, ButcherTableau, Multistep, make_solver

OWN = ButcherTableau.own([["8/15"], ["1/4", "5/12"]], ["1/4", 0, "3/4"])  # Wray's third order
# What theory says of the methods that are not in the table. PolyNet needs f(0) = 0 to converge at
# all, because F(F(y)) evaluates f near 0. Predictor-correctors start with EMA weights, which do
# not add up to 1: the predictor falls short, and the corrector mends that to order 1 (with a
# predictor that is consistent they do better: test_corrector.py).
ORDERS = {name: tableau.order for name, tableau in TABLEAUX.items()} | {
    "leapfrog": 2,
    "multistep": 1,
    "dlcl": 1,
    "polynet": 1,
    "pc2": 1,
    "pc4": 1,
    "custom": 3,
}
TOLERANCE = 0.12
# The first-order error of pc4 is so small (its predictor misses 1/16 of a step) that errors of
# higher order hide it until the steps are fine.
STEPS = {"pc4": (120, 240, 480)}


@dataclass(frozen=True)
class Problem:
    """y' = f(y) up to `time`, with the solution as a function of t."""

    f: Callable[[Tensor], Tensor]
    solution: Callable[[float], list[float]]
    time: float


def logistic_solution(t: float) -> list[float]:
    return [0.1 * np.exp(t) / (0.9 + 0.1 * np.exp(t))]


def decaying(v: Tensor) -> Tensor:
    """y' = -2 t y^2 with the time as a second component."""
    y, t = v.unbind(-1)
    return torch.stack([-2 * t * y * y, torch.ones_like(t)], dim=-1)


def pendulum(v: Tensor) -> Tensor:
    """x'' = -sin x, as a system."""
    x, speed = v.unbind(-1)
    return torch.stack([speed, -torch.sin(x)], dim=-1)


LOGISTIC = Problem(lambda y: y * (1 - y), logistic_solution, 3.0)
NONAUTONOMOUS = Problem(decaying, lambda t: [1 / (1 + t * t), t], 1.5)
# On its separatrix the pendulum has a solution in closed form.
PENDULUM = Problem(pendulum, lambda t: [4 * np.arctan(np.exp(t)) - np.pi, 2 / np.cosh(t)], 1.5)


def trajectory(
    method: str, problem: Problem, steps: int, gamma: str = "tableau", k: float = 1.0
) -> Iterator[Tensor]:
    """y after each block; `k` is the coefficient of multistep."""
    y, history = torch.tensor(problem.solution(0.0), dtype=torch.float64), ()
    h = problem.time / steps
    for t in range(steps):
        solver = make_solver(method, gamma, t, tableau=OWN).double()
        if isinstance(solver, Multistep) and solver.k is not None:
            solver.k.data.fill_(k)
        with torch.no_grad():
            y, history = solver.step(lambda v: h * problem.f(v), y, history)
        yield y


def error(
    method: str,
    problem: Problem,
    steps: int,
    speed: float = 1.0,
    gamma: str = "tableau",
    k: float = 1.0,
) -> float:
    """The largest distance from the solution, run through at `speed` times its pace."""
    h = speed * problem.time / steps
    states = enumerate(trajectory(method, problem, steps, gamma, k), start=1)
    return max(float(np.linalg.norm(y.numpy() - problem.solution(t * h))) for t, y in states)


def order(method: str, problem: Problem, **settings: float | str) -> float:
    """Least-squares exponent p of error ~ steps^-p."""
    steps = STEPS.get(method, (30, 60, 120))
    errors = [error(method, problem, n, **settings) for n in steps]  # pyright: ignore[reportArgumentType]
    return -np.polyfit(np.log(steps), np.log(errors), 1)[0]


def test_every_method_has_an_expected_order() -> None:
    assert set(ORDERS) == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_measured_order_on_the_logistic_equation(method: str) -> None:
    assert order(method, LOGISTIC) == pytest.approx(ORDERS[method], abs=TOLERANCE)


@pytest.mark.parametrize("method", [m for m in METHODS if m != "polynet"])
def test_measured_order_on_a_nonautonomous_equation(method: str) -> None:
    assert order(method, NONAUTONOMOUS) == pytest.approx(ORDERS[method], abs=TOLERANCE)


@pytest.mark.parametrize("method", METHODS)
def test_measured_order_on_a_nonlinear_system(method: str) -> None:
    assert order(method, PENDULUM) == pytest.approx(ORDERS[method], abs=TOLERANCE)


def test_polynet_does_not_converge_where_f_does_not_vanish_at_zero() -> None:
    """Its F(F(y)) then adds h f(0) a step, which is no part of y' = f(y)."""
    assert error("polynet", NONAUTONOMOUS, 120) > 1


@pytest.mark.parametrize("name", TABLEAUX)
def test_stages_see_the_times_c_of_the_tableau(name: str) -> None:
    """With the time as the component of y, stage i is evaluated at t + c_i h."""
    seen: list[float] = []

    def clock(t: Tensor) -> Tensor:
        seen.append(t.item())
        return torch.full_like(t, 0.5)

    make_solver(name).step(clock, torch.tensor(2.0, dtype=torch.float64))
    assert seen == pytest.approx([2.0 + 0.5 * float(c) for c in TABLEAUX[name].c], abs=1e-14)


@pytest.mark.parametrize("k", [0.5, 0.8, 1.2])
def test_multistep_away_from_euler_solves_an_equation_of_another_pace(k: float) -> None:
    """For fixed k the recurrence is a consistent method for y' = f(y) / (2 - k), of order 1."""
    measured = order("multistep", LOGISTIC, k=k, speed=1 / (2 - k))
    assert measured == pytest.approx(1, abs=TOLERANCE)


@pytest.mark.parametrize("gamma", ["ones", "learned"])
def test_rk2_with_gamma_one_solves_an_equation_twice_as_fast(gamma: str) -> None:
    """It is two Euler steps, so it converges to y' = 2 f(y), at order 1."""
    assert order("rk2", LOGISTIC, gamma=gamma, speed=2.0) == pytest.approx(1, abs=TOLERANCE)


def test_a_higher_order_means_a_smaller_error_at_equal_depth() -> None:
    """The paper's point: same number of blocks, lower truncation error."""
    euler, rk2, rk4 = (error(name, LOGISTIC, 6) for name in ("euler", "rk2", "rk4"))
    assert euler > 5 * rk2 > 50 * rk4
