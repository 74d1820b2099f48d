"""The kinds of gamma against formulas in plain floats, where they start, and their gradients."""

import copy
import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call

from kutta.errors import InputError
from kutta.ode import GAMMAS, TABLEAUX, ButcherTableau, RungeKutta, make_solver

LEARNED = ["learned", "gated", "ema"]
WIDTH = 4
THREE_STAGES = ButcherTableau.own([["1/2"], [-1, 2]], ["1/6", "2/3", "1/6"])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(11)


def field() -> Callable[[Tensor], Tensor]:
    weight, bias = torch.randn(WIDTH, WIDTH).double() / 2, torch.randn(WIDTH).double()
    return lambda y: torch.tanh(y @ weight + bias)


def solver_of(
    method: str, gamma: str, values: dict[str, Tensor] | None = None, **settings: str
) -> RungeKutta:
    """A solver in double precision, its learned coefficients set to `values`."""
    solver = make_solver(method, gamma, width=WIDTH, **settings).double()
    assert isinstance(solver, RungeKutta)
    if values is not None:
        solver.load_state_dict({name: value.double() for name, value in values.items()})
    return solver


def values_of(solver: RungeKutta, stages: int) -> list[float]:
    """The weights of a kind that does not look at the stages."""
    with torch.no_grad():
        return [float(weight) for weight in solver.weights([torch.zeros(1)] * stages)]


# By hand, in plain floats


def f(y: float) -> float:
    return math.sin(1.3 * y + 0.2)


def rk2_stages(y: float) -> tuple[float, float]:
    first = f(y)
    return first, f(y + first)


def rk4_stages(y: float) -> tuple[float, float, float, float]:
    first = f(y)
    second = f(y + first / 2)
    third = f(y + second / 2)
    return first, second, third, f(y + third)


def stepped(solver: RungeKutta, y: float) -> float:
    start = torch.tensor([y], dtype=torch.float64)
    return solver.step(lambda v: torch.sin(1.3 * v + 0.2), start)[0].item()


@given(st.floats(-2, 2), st.floats(-0.5, 1.5))
def test_ema_by_hand(y: float, a: float) -> None:
    F1, F2 = rk2_stages(y)
    alpha = {"alpha": torch.tensor(a, dtype=torch.float64)}
    expected = y + a * (1 - a) * F1 + a * F2
    assert stepped(solver_of("rk2", "ema", alpha), y) == pytest.approx(expected, abs=1e-13)
    F1, F2, F3, F4 = rk4_stages(y)
    expected = y + a * (1 - a) ** 3 * F1 + a * (1 - a) ** 2 * F2 + a * (1 - a) * F3 + a * F4
    assert stepped(solver_of("rk4", "ema", alpha), y) == pytest.approx(expected, abs=1e-13)


@given(st.floats(-2, 2), st.lists(st.floats(-2, 2), min_size=4, max_size=4))
def test_learned_by_hand(y: float, g: list[float]) -> None:
    F1, F2 = rk2_stages(y)
    two = {"learned_gamma": torch.tensor(g[:2], dtype=torch.float64)}
    expected = y + g[0] * F1 + g[1] * F2
    assert stepped(solver_of("rk2", "learned", two), y) == pytest.approx(expected, abs=1e-13)
    F1, F2, F3, F4 = rk4_stages(y)
    four = {"learned_gamma": torch.tensor(g, dtype=torch.float64)}
    expected = y + g[0] * F1 + g[1] * F2 + g[2] * F3 + g[3] * F4
    assert stepped(solver_of("rk4", "learned", four), y) == pytest.approx(expected, abs=1e-13)


def test_tableau_and_ones_by_hand() -> None:
    F1, F2, F3, F4 = rk4_stages(0.4)
    expected = 0.4 + F1 / 6 + F2 / 3 + F3 / 3 + F4 / 6
    assert stepped(solver_of("rk4", "tableau"), 0.4) == pytest.approx(expected, abs=1e-13)
    expected = 0.4 + F1 + F2 + F3 + F4
    assert stepped(solver_of("rk4", "ones"), 0.4) == pytest.approx(expected, abs=1e-13)


def test_gated_by_hand() -> None:
    """One gate per position: s from that position's F1 and F2 alone."""
    random = np.random.default_rng(5)
    W, c = random.normal(size=(1, 2 * WIDTH)), 0.3
    A, y = random.normal(size=(WIDTH, WIDTH)), random.normal(size=(3, 2, WIDTH))
    matrix = torch.from_numpy(A)
    bias = torch.tensor([c], dtype=torch.float64)
    values = {"gate_weight": torch.from_numpy(W), "gate_bias": bias}
    solver = solver_of("rk2", "gated", values)
    got, _ = solver.step(lambda v: torch.sin(v @ matrix), torch.from_numpy(y))
    for t in range(3):
        for row in range(2):
            state = y[t, row]
            F1 = np.sin(state @ A)
            F2 = np.sin((state + F1) @ A)
            logit = sum(w * x for w, x in zip(W[0], [*F1, *F2], strict=True)) + c
            s = 1 / (1 + math.exp(-logit))
            np.testing.assert_allclose(
                got[t, row].detach().numpy(), state + s * F1 + (1 - s) * F2, rtol=1e-12
            )


@given(st.integers(1, 6), st.floats(0.01, 0.99))
def test_ema_weights_of_any_number_of_stages(stages: int, a: float) -> None:
    """A geometric row that ends in a, each before it (1 - a) times the next; sum 1 - (1 - a)^s."""
    rows = [[0] * i for i in range(1, stages)]
    tableau = ButcherTableau.own(rows, [1] + [0] * (stages - 1))
    solver = RungeKutta(tableau, "ema").double()
    solver.load_state_dict({"alpha": torch.tensor(a, dtype=torch.float64)})
    weights = values_of(solver, stages)
    assert weights[-1] == a
    for earlier, later in pairwise(weights):
        assert earlier == pytest.approx(later * (1 - a), rel=1e-12)
    assert sum(weights) == pytest.approx(1 - (1 - a) ** stages, rel=1e-12)


# Where they start


@pytest.mark.parametrize("name", TABLEAUX)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_learned_gamma_is_one_scalar_a_stage_and_starts_exactly_at_ones(
    name: str, dtype: torch.dtype
) -> None:
    F, y = field(), torch.randn(3, WIDTH).double()
    learned, ones = make_solver(name, "learned"), make_solver(name, "ones")
    assert [p.tolist() for p in learned.parameters()] == [[1.0] * TABLEAUX[name].stages]
    assert not list(ones.parameters())
    cast = lambda v: F(v.double()).to(dtype)  # noqa: E731
    assert torch.equal(learned.step(cast, y.to(dtype))[0], ones.step(cast, y.to(dtype))[0])


@pytest.mark.parametrize("name", TABLEAUX)
def test_learned_gamma_may_start_at_the_tableau(name: str) -> None:
    F, y = field(), torch.randn(3, WIDTH).double()
    learned = solver_of(name, "learned", start="tableau")
    (gamma,) = learned.parameters()
    assert gamma.tolist() == pytest.approx([float(b) for b in TABLEAUX[name].b], rel=1e-7)
    torch.testing.assert_close(
        learned.step(F, y)[0], solver_of(name, "tableau").step(F, y)[0], rtol=1e-6, atol=1e-7
    )


def test_a_gate_starts_at_heuns_method() -> None:
    F, y = field(), torch.randn(3, WIDTH).double()
    expected = solver_of("rk2", "tableau").step(F, y)[0]
    torch.testing.assert_close(solver_of("rk2", "gated").step(F, y)[0], expected)


def test_ema_starts_at_a_half() -> None:
    assert values_of(solver_of("rk4", "ema"), 4) == [1 / 16, 1 / 8, 1 / 4, 1 / 2]


def test_the_names_of_what_is_learned_are_stable() -> None:
    """They are the keys of trained models."""
    names = {gamma: set(solver_of("rk2", gamma).state_dict()) for gamma in GAMMAS}
    assert names == {
        "tableau": set(),
        "ones": set(),
        "learned": {"learned_gamma"},
        "gated": {"gate_weight", "gate_bias"},
        "ema": {"alpha"},
    }
    assert solver_of("rk2", "gated").state_dict()["gate_weight"].shape == (1, 2 * WIDTH)
    assert solver_of("rk2", "ema").state_dict()["alpha"].shape == ()


# Gradients


@pytest.mark.parametrize("gamma", LEARNED)
def test_gradients_of_what_is_learned_agree_with_finite_differences(gamma: str) -> None:
    F, y = field(), torch.randn(3, WIDTH).double()
    solver = solver_of("rk2", gamma)
    names = list(solver.state_dict())
    values = [torch.randn_like(p).mul(0.3).requires_grad_() for p in solver.parameters()]

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.solver = solver

        def forward(self) -> Tensor:
            return self.solver.step(F, y)[0]

    step = Step()

    def after(*learned: Tensor) -> Tensor:
        named = {f"solver.{n}": value for n, value in zip(names, learned, strict=True)}
        return functional_call(step, named, ())

    assert torch.autograd.gradcheck(after, values)


@pytest.mark.parametrize("gamma", LEARNED)
def test_every_learned_coefficient_has_a_finite_gradient_at_its_start(gamma: str) -> None:
    solver = solver_of("rk2", gamma)
    solver.step(field(), torch.randn(3, WIDTH).double())[0].square().sum().backward()
    for parameter in solver.parameters():
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().max() > 0


@pytest.mark.parametrize(("bias", "stage"), [(1e4, 0), (-1e4, 1)])
def test_a_gate_that_is_fully_open_or_shut_takes_one_stage(bias: float, stage: int) -> None:
    F, y = field(), torch.randn(3, WIDTH).double()
    values = {"gate_weight": torch.zeros(1, 2 * WIDTH), "gate_bias": torch.tensor([bias])}
    solver = solver_of("rk2", "gated", values)
    stages = [F(y), F(y + F(y))]
    after = solver.step(F, y)[0]
    torch.testing.assert_close(after, y + stages[stage])
    after.sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in solver.parameters())


@pytest.mark.parametrize("a", [0.0, 1.0])
def test_ema_at_its_ends(a: float) -> None:
    """a = 0 stands still, a = 1 takes the last stage alone; both can be learned away from."""
    F, y = field(), torch.randn(3, WIDTH).double()
    solver = solver_of("rk4", "ema", {"alpha": torch.tensor(a)})
    after = solver.step(F, y)[0]
    torch.testing.assert_close(after, y + a * solver.stages(F, y)[-1])
    after.sum().backward()
    (alpha,) = solver.parameters()
    assert alpha.grad is not None
    assert torch.isfinite(alpha.grad)
    assert alpha.grad != 0


@pytest.mark.parametrize("name", ["rk2", "rk4", "midpoint"])
def test_the_gradient_of_learned_gamma_is_the_stage(name: str) -> None:
    """d(sum y') / d gamma_i = sum F_i, also where the tableau's own weight is zero."""
    F, y = field(), torch.randn(3, WIDTH).double()
    solver = solver_of(name, "learned")
    solver.step(F, y)[0].sum().backward()
    (gamma,) = solver.parameters()
    sums = [stage.sum() for stage in solver.stages(F, y)]
    torch.testing.assert_close(gamma.grad, torch.stack(sums))


@pytest.mark.parametrize("gamma", LEARNED)
def test_a_copy_learns_for_itself(gamma: str) -> None:
    F, y = field(), torch.randn(3, WIDTH).double()
    solver = solver_of("rk2", gamma)
    before, other = solver.step(F, y)[0], copy.deepcopy(solver)
    for parameter in other.parameters():
        parameter.data.add_(0.25)
    assert torch.equal(solver.step(F, y)[0], before)
    assert not torch.equal(other.step(F, y)[0], before)


@pytest.mark.parametrize("gamma", list(GAMMAS))
def test_mixed_precision_keeps_the_state_in_full_precision(gamma: str) -> None:
    linear, y = torch.nn.Linear(WIDTH, WIDTH), torch.randn(3, WIDTH)
    solver = make_solver("rk2", gamma, width=WIDTH)
    exact = solver.step(linear, y)[0]
    with torch.autocast("cpu", torch.bfloat16):
        after = solver.step(linear, y)[0]
    assert after.dtype == torch.float32
    torch.testing.assert_close(after, exact, rtol=0.05, atol=0.05)


# Wrong settings


@pytest.mark.parametrize("method", [n for n, t in TABLEAUX.items() if t.stages != 2])
def test_a_gate_needs_two_stages(method: str) -> None:
    with pytest.raises(InputError, match="2 stages"):
        make_solver(method, "gated", width=WIDTH)


def test_a_gate_takes_any_two_stages_and_needs_the_width() -> None:
    two = ButcherTableau.own([["2/3"]], ["1/4", "3/4"])
    assert make_solver("custom", "gated", width=WIDTH, tableau=two).evaluations == 2
    with pytest.raises(InputError, match="2 stages"):
        make_solver("custom", "gated", width=WIDTH, tableau=THREE_STAGES)
    for width in (0, -1):
        with pytest.raises(InputError, match="width"):
            make_solver("rk2", "gated", width=width)


def test_an_unknown_start_is_refused_with_a_choice() -> None:
    with pytest.raises(InputError, match="ones or tableau"):
        make_solver("rk2", "learned", start="zero")


@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_kind_that_learns_says_so(gamma: str) -> None:
    assert GAMMAS[gamma].learned == bool([*solver_of("rk2", gamma).parameters()])


@pytest.mark.parametrize("gamma", GAMMAS)
def test_only_the_kinds_that_say_so_begin_where_one_chooses(gamma: str) -> None:
    ones, tableau = (solver_of("rk2", gamma, start=start) for start in ("ones", "tableau"))
    pairs = zip(ones.parameters(), tableau.parameters(), strict=True)
    assert GAMMAS[gamma].starts == any(not torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_kind_reads_the_stages_with_the_parameters_it_names(gamma: str) -> None:
    """Stages k times smaller, and what reads them k times larger, leave gamma as it is."""
    solver = solver_of("rk2", gamma)
    stages = [torch.randn(3, WIDTH, dtype=torch.float64) for _ in range(2)]
    with torch.no_grad():
        for parameter in solver.parameters():
            parameter.normal_()
        before = [torch.as_tensor(weight) for weight in solver.weights(stages)]
        for name in GAMMAS[gamma].reads:
            solver.get_parameter(name).mul_(4)
        after = solver.weights([stage / 4 for stage in stages])
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(torch.as_tensor(new), old)
