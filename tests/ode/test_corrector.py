"""Predictor-corrector blocks by hand, their history, and the order they reach."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from kutta.ode import METHODS, TABLEAUX, PredictorCorrector, RungeKutta, make_solver
from kutta.ode.solver import ADAMS_MOULTON

PREDICTORS = {"pc2": "rk2", "pc4": "rk4"}
BLOCKS = 5
Function = Callable[[float], float]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def corrector(method: str, block: int) -> PredictorCorrector:
    """In double precision, with the exact Adams-Moulton weights."""
    solver = make_solver(method, block=block).double()
    assert isinstance(solver, PredictorCorrector)
    solver.corrector.data = torch.tensor(ADAMS_MOULTON[min(block, 2)], dtype=torch.float64)
    return solver


def moulton_weights(steps: int) -> list[Fraction]:
    """The integrals over [0, 1] of the Lagrange polynomials on the nodes 1, 0, -1, ..., -steps."""
    nodes = range(1, -steps - 1, -1)
    weights: list[Fraction] = []
    for node in nodes:
        polynomial = [Fraction(1)]  # coefficients, the constant first
        for other in nodes:
            if other != node:
                shifted = [Fraction(0), *polynomial]
                for i, x in enumerate(polynomial):
                    shifted[i] -= other * x
                polynomial = [x / (node - other) for x in shifted]
        weights.append(sum((x / (i + 1) for i, x in enumerate(polynomial)), Fraction(0)))
    return weights


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_the_corrector_starts_at_adams_moulton(steps: int) -> None:
    exact = [float(w) for w in moulton_weights(steps)]
    assert list(ADAMS_MOULTON[steps]) == pytest.approx(exact, abs=1e-15)


@pytest.mark.parametrize("method", PREDICTORS)
def test_what_each_block_learns(method: str) -> None:
    for block in range(BLOCKS):
        solver = make_solver(method, block=block)
        values = {name: value.tolist() for name, value in solver.state_dict().items()}
        assert values.pop("predictor.alpha") == 0.5
        assert values.pop("corrector") == pytest.approx(ADAMS_MOULTON[min(block, 2)], rel=1e-6)
        assert not values
        assert solver.evaluations == TABLEAUX[PREDICTORS[method]].stages + 1


# By hand, in plain floats, every block with a field and weights of its own


def rk2_prediction(f: Function, y: float, a: float) -> tuple[float, float]:
    F1 = f(y)
    F2 = f(y + F1)
    return y + a * (1 - a) * F1 + a * F2, F1


def rk4_prediction(f: Function, y: float, a: float) -> tuple[float, float]:
    F1 = f(y)
    F2 = f(y + F1 / 2)
    F3 = f(y + F2 / 2)
    F4 = f(y + F3)
    b = 1 - a
    return y + a * b**3 * F1 + a * b**2 * F2 + a * b * F3 + a * F4, F1


PREDICTION = {"pc2": rk2_prediction, "pc4": rk4_prediction}


@pytest.mark.parametrize("method", PREDICTORS)
def test_a_stack_by_hand(method: str) -> None:
    random = np.random.default_rng(1)
    alphas, scales, shifts = random.uniform(0.2, 0.8, BLOCKS), *random.normal(size=(2, BLOCKS))
    rows = [random.normal(size=n) for n in (2, 3, 4, 4, 4)]
    y, firsts = 0.3, []  # the first stages, the newest at the end
    state, history = torch.tensor([0.3], dtype=torch.float64), ()
    for t, (a, w, c, row) in enumerate(zip(alphas, scales, shifts, rows, strict=True)):
        predicted, first = PREDICTION[method](lambda v, w=w, c=c: np.sin(w * v + c), y, a)
        firsts.append(first)
        slopes = [np.sin(w * predicted + c), *reversed(firsts[-3:])]
        y = y + sum(weight * slope for weight, slope in zip(row, slopes, strict=True))

        solver = make_solver(method, block=t).double()
        solver.load_state_dict({"predictor.alpha": torch.tensor(a), "corrector": torch.tensor(row)})
        state, history = solver.step(lambda v, w=w, c=c: torch.sin(w * v + c), state, history)
        assert state.item() == pytest.approx(y, rel=1e-12)
        assert [h.item() for h in history] == pytest.approx(firsts[-2:][::-1], rel=1e-12)


def test_weights_of_zero_and_one_make_it_euler() -> None:
    y = torch.randn(3, 4).double()
    solver, past = make_solver("pc4", block=2).double(), (torch.randn_like(y), torch.randn_like(y))
    solver.load_state_dict({"corrector": torch.tensor([0.0, 1, 0, 0])}, strict=False)
    torch.testing.assert_close(solver.step(torch.cos, y, past)[0], y + torch.cos(y))


@pytest.mark.parametrize("method", PREDICTORS)
def test_every_coefficient_of_a_stack_has_a_finite_gradient(method: str) -> None:
    solvers = [make_solver(method, block=t).double() for t in range(4)]
    y, history = torch.randn(3, 4).double(), ()
    for solver in solvers:
        y, history = solver.step(torch.sin, y, history)
    y.square().sum().backward()
    for parameter in (p for solver in solvers for p in solver.parameters()):
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()
        assert (parameter.grad != 0).all()


# History


def test_they_look_back() -> None:
    assert all(METHODS[name].looks_back for name in PREDICTORS)


@pytest.mark.parametrize(("block", "given"), [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (5, 1)])
def test_a_history_of_the_wrong_length_is_refused(block: int, given: int) -> None:
    y, calls = torch.zeros(2), []

    def F(v: Tensor) -> Tensor:
        calls.append(v)
        return v

    with pytest.raises(ValueError, match=f"was given {given} earlier"):
        make_solver("pc2", block=block).step(F, y, (y,) * given)
    assert not calls


# The order, on the logistic equation y' = y (1 - y), y(t) = 1 / (1 + 9 exp(-t))


def logistic(t: float) -> Tensor:
    return torch.tensor([1 / (1 + 9 * np.exp(-t))], dtype=torch.float64)


def error(method: str, steps: int, consistent: bool, warm: bool) -> float:
    """The largest error up to time 3, with the exact past where `warm`.

    `consistent` gives the predictor its tableau's weights in the place of EMA's.
    """
    h = 3 / steps

    def F(v: Tensor) -> Tensor:
        return h * v * (1 - v)

    y, worst = logistic(0.0), 0.0
    history = (F(logistic(-h)), F(logistic(-2 * h))) if warm else ()
    for t in range(steps):
        solver = corrector(method, t + 2 * warm)
        if consistent:
            solver.predictor = RungeKutta(TABLEAUX[PREDICTORS[method]])
        with torch.no_grad():
            y, history = solver.step(F, y, history)
        worst = max(worst, abs(y - logistic((t + 1) * h)).item())
    return worst


@pytest.mark.parametrize(
    ("method", "consistent", "warm", "order"),
    [
        # A predictor of order p is wrong by h^(p+1), which the corrector multiplies by h: p + 1,
        # but no more than Adams-Moulton's own 4.
        ("pc2", True, True, 3),
        ("pc4", True, True, 4),
        # The very first block is the trapezium rule; its one error of h^3 stays.
        ("pc2", True, False, 3),
        ("pc4", True, False, 3),
        # EMA weights that do not add up to 1 predict too short: order 0, so 1 in all.
        ("pc2", False, False, 1),
        ("pc4", False, False, 1),
    ],
)
def test_the_order(method: str, consistent: bool, warm: bool, order: int) -> None:
    steps = (80, 160, 320)
    errors = [error(method, n, consistent, warm) for n in steps]
    measured = -np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert measured == pytest.approx(order, abs=0.1)
