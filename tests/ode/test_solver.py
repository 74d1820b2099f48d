"""Solvers against formulas written out by hand, and what the paper states about them."""

from collections.abc import Callable
from fractions import Fraction
from math import factorial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kutta.errors import InputError
from kutta.ode import (
    DLCL,
    METHODS,
    TABLEAUX,
    ButcherTableau,
    Leapfrog,
    Multistep,
    PolyNet,
    RungeKutta,
    Solver,
    make_solver,
    tableau_of,
)

Array = np.ndarray
BLOCKS = 5
OWN = ButcherTableau.own([["8/15"], ["1/4", "5/12"]], ["1/4", 0, "3/4"])  # Wray's third order


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(7)


def field(width: int = 4) -> Callable[[Tensor], Tensor]:
    """A smooth nonlinear F with F(0) != 0."""
    weight, bias = torch.randn(width, width).double() / width, torch.randn(width).double()
    return lambda y: torch.tanh(y @ weight + bias)


def state(width: int = 4) -> Tensor:
    return torch.randn(3, width).double()


def run(solvers: list[Solver], F: Callable[[Tensor], Tensor], y: Tensor) -> list[Tensor]:
    """The states y_0, y_1, ... after each block, history handed on."""
    states, history = [y], ()
    for solver in solvers:
        y, history = solver.step(F, y, history)
        states.append(y)
    return states


def close(a: Tensor | Array, b: Tensor | Array, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(
        torch.as_tensor(a), torch.as_tensor(b), rtol=tolerance, atol=tolerance
    )


# Runge-Kutta


@st.composite
def tableaux(draw: st.DrawFn) -> ButcherTableau:
    number = st.fractions(-1, 1, max_denominator=9)
    stages = draw(st.integers(1, 5))
    a = [[draw(number) for _ in range(i)] for i in range(1, stages)]
    b = [draw(number) for _ in range(stages - 1)]
    return ButcherTableau.of(a, [*b, 1 - sum(b, Fraction(0))], order=1)


def numpy_runge_kutta(
    A: Array, weights: Array, F: Callable[[Array], Array], y: Array
) -> tuple[Array, int]:
    """The textbook loop with a full matrix A; also says how often it called F."""
    k = np.zeros((len(weights), *y.shape))
    for i in range(len(weights)):
        k[i] = F(y + np.tensordot(A[i], k, axes=1))
    return y + np.tensordot(weights, k, axes=1), len(weights)


def full_matrix(tableau: ButcherTableau) -> Array:
    A = np.zeros((tableau.stages, tableau.stages))
    for i, row in enumerate(tableau.a, start=1):
        A[i, : len(row)] = [float(x) for x in row]
    return A


@settings(max_examples=60, deadline=None)
@given(tableaux(), st.sampled_from(["tableau", "ones", "learned"]), st.integers(0, 2**31))
def test_any_explicit_tableau_equals_the_textbook_loop(
    tableau: ButcherTableau, gamma: str, seed: int
) -> None:
    random = np.random.default_rng(seed)
    W, y = random.normal(size=(3, 3)), random.normal(size=(2, 3))
    solver = RungeKutta(tableau, gamma).double()
    weights = (
        np.ones(tableau.stages) if gamma == "ones" else np.array([float(x) for x in tableau.b])
    )
    for learned in solver.parameters():
        weights = random.normal(size=tableau.stages)
        learned.data = torch.from_numpy(weights)
    expected, calls = numpy_runge_kutta(full_matrix(tableau), weights, lambda v: np.sin(v @ W), y)
    matrix = torch.from_numpy(W)
    result, history = solver.step(lambda v: torch.sin(v @ matrix), torch.from_numpy(y), ())
    assert history == ()
    assert solver.evaluations == calls
    close(result.detach(), expected, 1e-11)


@pytest.mark.parametrize("name", [n for n, t in TABLEAUX.items() if t.stages == t.order])
def test_for_linear_fields_a_step_is_the_taylor_polynomial_of_exp(name: str) -> None:
    A, identity = torch.randn(5, 5).double(), torch.eye(5).double()
    powers = [torch.linalg.matrix_power(A, k) / factorial(k) for k in range(5)]
    step, _ = make_solver(name).step(lambda y: A @ y, identity)
    close(step, torch.stack(powers[: TABLEAUX[name].order + 1]).sum(0))


def test_all_methods_of_order_four_or_less_here_have_as_many_stages_as_their_order() -> None:
    """So the Taylor test above leaves none of them out."""
    assert all(t.stages == t.order <= 4 for t in TABLEAUX.values())


def test_two_euler_steps_with_shared_parameters_equal_rk2_with_gamma_one_to_the_last_bit() -> None:
    F, y = field(), state()
    euler = make_solver("euler")
    two_steps = run([euler, euler], F, y)[-1]
    for gamma in ("ones", "learned"):
        assert torch.equal(make_solver("rk2", gamma).step(F, y)[0], two_steps)


def test_the_papers_blocks_written_out() -> None:
    F, y = field(), state()
    F1 = F(y)
    close(make_solver("euler").step(F, y)[0], y + F1)
    close(make_solver("rk2").step(F, y)[0], y + (F1 + F(y + F1)) / 2)
    F2 = F(y + F1 / 2)
    F3 = F(y + F2 / 2)
    F4 = F(y + F3)
    close(make_solver("rk4").step(F, y)[0], y + (F1 + 2 * F2 + 2 * F3 + F4) / 6)
    close(make_solver("rk4", "ones").step(F, y)[0], y + F1 + F2 + F3 + F4)


@pytest.mark.parametrize("name", ["midpoint", "heun3"])
def test_zero_weights_still_evaluate_the_stage(name: str) -> None:
    assert 0 in TABLEAUX[name].b
    F, y, weights = field(), state(), np.array([float(x) for x in TABLEAUX[name].b])
    expected, _ = numpy_runge_kutta(
        full_matrix(TABLEAUX[name]), weights, lambda v: F(torch.from_numpy(v)).numpy(), y.numpy()
    )
    close(make_solver(name).step(F, y)[0], expected)


# Methods that are not Runge-Kutta


def test_leapfrog_is_its_recurrence_over_several_blocks() -> None:
    F, y0 = field(), state()
    y1 = y0 + F(y0)
    y2 = y0 + 2 * F(y1)
    y3 = y1 + 2 * F(y2)
    y4 = y2 + 2 * F(y3)
    for got, expected in zip(run([Leapfrog()] * 4, F, y0), (y0, y1, y2, y3, y4), strict=True):
        close(got, expected)


def test_multistep_is_its_recurrence_over_several_blocks() -> None:
    F, y0 = field(), state()
    k = [None, 0.3, -1.7, 2.2]
    solvers = [make_solver("multistep", block=t).double() for t in range(4)]
    for solver, value in zip(solvers, k, strict=True):
        for parameter in solver.parameters():
            parameter.data.fill_(value)
    y1 = y0 + F(y0)
    y2 = 0.3 * y1 + 0.7 * y0 + F(y1)
    y3 = -1.7 * y2 + 2.7 * y1 + F(y2)
    y4 = 2.2 * y3 - 1.2 * y2 + F(y3)
    for got, expected in zip(run(solvers, F, y0), (y0, y1, y2, y3, y4), strict=True):
        close(got.detach(), expected)


def test_dlcl_is_its_formula_with_random_weights() -> None:
    F, y0 = field(), state()
    solvers = [make_solver("dlcl", block=t).double() for t in range(BLOCKS)]
    W = [torch.randn(t + 1).double() for t in range(BLOCKS)]
    for solver, row in zip(solvers, W, strict=True):
        (weights,) = solver.parameters()
        weights.data = row
    y = [y0]
    for t in range(BLOCKS):
        y.append(y0 + sum(W[t][l] * F(y[l]) for l in range(t + 1)))  # noqa: E741
    for got, expected in zip(run(solvers, F, y0), y, strict=True):
        close(got.detach(), expected)


def test_polynet_is_y_plus_f_plus_f_of_f() -> None:
    F, y, A = field(), state(), torch.randn(4, 4).double()
    close(PolyNet().step(F, y)[0], y + F(y) + F(F(y)))
    linear, _ = PolyNet().step(lambda v: A @ v, torch.eye(4).double())
    close(linear, torch.eye(4).double() + A + A @ A)


@pytest.mark.parametrize("method", ["multistep", "dlcl"])
def test_methods_with_learned_coefficients_start_at_euler(method: str) -> None:
    F, y = field(), state()
    solvers = [make_solver(method, block=t) for t in range(BLOCKS)]
    euler = run([make_solver("euler")] * BLOCKS, F, y)
    for got, expected in zip(run(solvers, F, y), euler, strict=True):
        close(got.detach(), expected)


def test_learned_coefficients_of_dlcl_and_multistep_start_at_euler() -> None:
    for t in range(BLOCKS):
        (row,) = DLCL(t).parameters()
        assert row.tolist() == [1.0] * (t + 1)
        k = [p.item() for p in make_solver("multistep", block=t).parameters()]
        assert k == ([] if t == 0 else [1.0])
        assert not list(make_solver("leapfrog", block=t).parameters())
        assert not list(make_solver("polynet", block=t).parameters())


def test_a_first_multistep_block_is_euler_whatever_history_it_is_given() -> None:
    F, y = field(), state()
    for solver in (Multistep(0), Multistep(1)):
        assert torch.equal(solver.step(F, y, ())[0], y + F(y))
    assert torch.equal(Multistep(0).step(F, y, (state(),))[0], y + F(y))


def test_dlcl_refuses_a_history_of_the_wrong_length() -> None:
    F, y = field(), state()
    with pytest.raises(ValueError, match="DLCL block 2"):
        DLCL(2).step(F, y, (y, y))


# All methods


def blocks(method: str, count: int = BLOCKS) -> list[Solver]:
    """Solvers of consecutive blocks with coefficients that are nowhere special."""
    gamma = "learned" if tableau_of(method, OWN) else "tableau"
    solvers = [make_solver(method, gamma, t, tableau=OWN).double() for t in range(count)]
    for solver in solvers:
        for parameter in solver.parameters():
            torch.nn.init.uniform_(parameter, 0.2, 0.9)
    return solvers


@pytest.mark.parametrize("method", METHODS)
def test_a_step_calls_f_as_often_as_evaluations_says(method: str) -> None:
    F, y = field(), state()
    history = ()
    for solver in blocks(method):
        calls: list[Tensor] = []

        def counted(v: Tensor, calls: list[Tensor] = calls) -> Tensor:
            calls.append(v)
            return F(v)

        y, history = solver.step(counted, y, history)
        assert len(calls) == solver.evaluations


@pytest.mark.parametrize("method", METHODS)
def test_history_is_an_argument_and_nothing_is_hidden(method: str) -> None:
    """The same arguments give the same result, in any order of calls, and are left unchanged."""
    F, y = field(), state()
    solvers, arguments, results = blocks(method), [], []
    history = ()
    for solver in solvers:
        arguments.append((y, history))
        y, history = solver.step(F, y, history)
        results.append((y, history))
    copies = [(a.clone(), tuple(x.clone() for x in h)) for a, h in arguments]
    for t in reversed(range(BLOCKS)):
        again, past = solvers[t].step(F, *arguments[t])
        assert torch.equal(again, results[t][0])
        assert len(past) == len(results[t][1])
        assert all(torch.equal(a, b) for a, b in zip(past, results[t][1], strict=True))
    for (a, h), (b, g) in zip(arguments, copies, strict=True):
        assert torch.equal(a, b)
        assert all(torch.equal(x, z) for x, z in zip(h, g, strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_a_method_looks_back_where_it_says_so(method: str) -> None:
    F, y = field(), state()
    solver = blocks(method)[1]
    _, history = blocks(method)[0].step(F, y, ())
    assert (len(history) > 0) == METHODS[method].looks_back
    if not METHODS[method].looks_back:
        mark = (state(),)
        after, passed = solver.step(F, y, mark)
        assert passed is mark
        assert torch.equal(after, solver.step(F, y, ())[0])


@pytest.mark.parametrize("method", METHODS)
def test_a_method_learns_what_it_says(method: str) -> None:
    """From the second block on: the first step of the multistep method is Euler's."""
    solver = make_solver(method, block=1, tableau=OWN)
    assert {name for name, _ in solver.named_parameters()} == set(METHODS[method].learns)


def test_unknown_names_are_refused_with_a_choice() -> None:
    with pytest.raises(InputError, match="rk4"):
        make_solver("rk5")
    with pytest.raises(InputError, match="learned"):
        RungeKutta(TABLEAUX["rk2"], "learnt")
    with pytest.raises(InputError, match="no gamma 'ema'"):
        make_solver("pc2", "ema")


def test_a_tableau_of_ones_own_is_a_method() -> None:
    F, y = field(), state()
    weights = np.array([0.25, 0, 0.75])
    A = np.array([[0, 0, 0], [8 / 15, 0, 0], [1 / 4, 5 / 12, 0]])
    expected, _ = numpy_runge_kutta(A, weights, lambda v: F(torch.from_numpy(v)).numpy(), y.numpy())
    close(make_solver("custom", tableau=OWN).step(F, y)[0], expected)
    with pytest.raises(InputError, match="needs a tableau"):
        make_solver("custom")


def test_a_tableau_of_ones_own_changes_no_other_method() -> None:
    F, y = field(), state()
    for method in ("rk2", "leapfrog"):
        plain, _ = make_solver(method).step(F, y)
        assert torch.equal(make_solver(method, tableau=OWN).step(F, y)[0], plain)


def test_the_stages_of_a_method() -> None:
    known = {"euler": 1, "rk2": 2, "kutta3": 3, "rk4": 4}
    assert {method: METHODS[method].tableau.stages for method in known} == known
    assert tableau_of("leapfrog", OWN) is tableau_of("pc4", OWN) is tableau_of("custom") is None
    assert tableau_of("custom", OWN) is OWN
    assert tableau_of("rk4", OWN) is TABLEAUX["rk4"]


def test_every_stage_needs_a_weight() -> None:
    solver = make_solver("rk4")
    assert isinstance(solver, RungeKutta)
    solver.b = solver.b[:3]
    with pytest.raises(ValueError, match="zip"):
        solver.step(field(), state())
