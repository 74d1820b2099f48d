"""The paper's formulas of back-propagation through a stack of blocks, checked by autograd.

With z_k = y_k + F_k(y_k) and g_k = (1 + F_k'(y_k)) (1 + F_k'(z_k)), the gradient reaches y_t as

    residual         dL/dy_t = dL/dy_T  prod_{k=t}^{T-1} (1 + F_k'(y_k))
    RK2              dL/dy_t = dL/dy_T  prod_{k=t}^{T-1} (1 + g_k) / 2
    RK2, gamma = 1   dL/dy_t = dL/dy_T  prod_{k=t}^{T-1} g_k

For states of several components the factors are matrices and do not commute: the Jacobian of z_k
comes first, G_k = (I + J_k(z_k)) (I + J_k(y_k)), and the product runs from block T-1 down to t.
"""

from dataclasses import dataclass
from math import isclose, tanh

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd.functional import jacobian

from kutta.ode import make_solver

Array = np.ndarray
STACKS: list[tuple[str, str]] = [
    ("euler", "tableau"),
    ("rk2", "tableau"),
    ("rk2", "ones"),
    ("rk2", "learned"),  # it starts at gamma = 1
]


@dataclass(frozen=True)
class ScalarField:
    """F(y) = a tanh(b y + c), a field of its own for every block."""

    a: float
    b: float
    c: float

    def __call__(self, y: Tensor) -> Tensor:
        return self.a * torch.tanh(self.b * y + self.c)

    def value(self, y: float) -> float:
        return self.a * tanh(self.b * y + self.c)

    def slope(self, y: float) -> float:
        return self.a * self.b * (1 - tanh(self.b * y + self.c) ** 2)


def scalar_block(method: str, gamma: str, F: ScalarField, y: float) -> tuple[float, float]:
    """y_{k+1} and the paper's factor of the block."""
    z = y + F.value(y)
    if method == "euler":
        return z, 1 + F.slope(y)
    g = (1 + F.slope(y)) * (1 + F.slope(z))
    if gamma == "tableau":
        return y + (F.value(y) + F.value(z)) / 2, (1 + g) / 2
    return y + F.value(y) + F.value(z), g


number = st.floats(-1.5, 1.5)
scalar_fields = st.lists(st.builds(ScalarField, number, number, number), min_size=1, max_size=8)


@pytest.mark.parametrize(("method", "gamma"), STACKS)
@given(fields=scalar_fields, start=st.floats(-2, 2))
def test_the_gradient_reaches_every_state_as_the_paper_says(
    method: str, gamma: str, fields: list[ScalarField], start: float
) -> None:
    states = [torch.tensor(start, dtype=torch.float64, requires_grad=True)]
    values, factors = [start], []
    for F in fields:
        y, _ = make_solver(method, gamma).double().step(F, states[-1])
        y.retain_grad()
        states.append(y)
        value, factor = scalar_block(method, gamma, F, values[-1])
        values.append(value)
        factors.append(factor)
    loss = states[-1].sin()
    loss.backward()

    arriving = float(np.cos(values[-1]))  # dL/dy_T
    for t in reversed(range(len(fields) + 1)):
        grad = states[t].grad
        assert grad is not None
        assert isclose(states[t].item(), values[t], rel_tol=1e-11, abs_tol=1e-12)
        assert isclose(grad.item(), arriving, rel_tol=1e-9, abs_tol=1e-10)
        arriving *= factors[t - 1]


@given(
    scalar_fields,
    st.floats(-2, 2),
    st.lists(st.tuples(number, number), min_size=8, max_size=8),
)
def test_weights_anywhere_give_the_factor_of_the_chain_rule(
    fields: list[ScalarField], start: float, gammas: list[tuple[float, float]]
) -> None:
    """1 + gamma_1 F'(y) + gamma_2 F'(z) (1 + F'(y)), of which the formulas above are two cases."""
    first = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    y, value, product = first, start, 1.0
    for F, (g1, g2) in zip(fields, gammas, strict=False):
        solver = make_solver("rk2", "learned").double()
        solver.load_state_dict({"learned_gamma": torch.tensor([g1, g2], dtype=torch.float64)})
        y, _ = solver.step(F, y)
        z = value + F.value(value)
        product *= 1 + g1 * F.slope(value) + g2 * F.slope(z) * (1 + F.slope(value))
        value = value + g1 * F.value(value) + g2 * F.value(z)
    (grad,) = torch.autograd.grad(y, first)
    assert isclose(grad.item(), product, rel_tol=1e-9, abs_tol=1e-10)


# Matrices


@dataclass(frozen=True)
class VectorField:
    """F(y) = A tanh(B y + c) for y (d,), with its Jacobian A diag(1 - tanh^2) B."""

    A: Array
    B: Array
    c: Array

    def __call__(self, y: Tensor) -> Tensor:
        A, B, c = (torch.from_numpy(x) for x in (self.A, self.B, self.c))
        return A @ torch.tanh(B @ y + c)

    def value(self, y: Array) -> Array:
        return self.A @ np.tanh(self.B @ y + self.c)

    def jacobian(self, y: Array) -> Array:
        return self.A @ np.diag(1 - np.tanh(self.B @ y + self.c) ** 2) @ self.B


def vector_block(
    method: str, gamma: str, F: VectorField, y: Array, swapped: bool = False
) -> tuple[Array, Array]:
    """y_{k+1} and the block's Jacobian; `swapped` takes the two factors of G in the wrong order."""
    identity = np.eye(len(y))
    z = y + F.value(y)
    inner, outer = identity + F.jacobian(y), identity + F.jacobian(z)
    if method == "euler":
        return z, inner
    G = inner @ outer if swapped else outer @ inner
    if gamma == "tableau":
        return y + (F.value(y) + F.value(z)) / 2, (identity + G) / 2
    return y + F.value(y) + F.value(z), G


def vector_fields(seed: int, blocks: int, d: int) -> tuple[list[VectorField], Array]:
    random = np.random.default_rng(seed)
    fields = [
        VectorField(
            random.normal(size=(d, d)) / d**0.5, random.normal(size=(d, d)), random.normal(size=d)
        )
        for _ in range(blocks)
    ]
    return fields, random.normal(size=d)


def by_autograd(method: str, gamma: str, fields: list[VectorField], start: Array) -> Array:
    """dy_T / dy_0, (d, d)."""

    def stack(y: Tensor) -> Tensor:
        for F in fields:
            y, _ = make_solver(method, gamma).double().step(F, y)
        return y

    result = jacobian(stack, torch.from_numpy(start))
    assert isinstance(result, Tensor)
    return result.detach().numpy()


def by_formula(
    method: str, gamma: str, fields: list[VectorField], y: Array, swapped: bool = False
) -> Array:
    """The product of the blocks' Jacobians, the last block leftmost."""
    product = np.eye(len(y))
    for F in fields:
        y, factor = vector_block(method, gamma, F, y, swapped)
        product = factor @ product
    return product


@pytest.mark.parametrize(("method", "gamma"), STACKS)
@given(seed=st.integers(0, 2**32 - 1), blocks=st.integers(1, 5), d=st.integers(1, 5))
def test_the_jacobian_of_a_stack_is_the_product_of_the_papers_factors(
    method: str, gamma: str, seed: int, blocks: int, d: int
) -> None:
    fields, y = vector_fields(seed, blocks, d)
    expected = by_formula(method, gamma, fields, y)
    scale = 1 + np.abs(expected).max()
    np.testing.assert_allclose(
        by_autograd(method, gamma, fields, y) / scale, expected / scale, atol=1e-9
    )


def test_the_order_of_the_factors_matters() -> None:
    """The other order inside g, or of the blocks, is a different matrix: the test above sees it."""
    fields, y = vector_fields(seed=0, blocks=3, d=3)
    true = by_autograd("rk2", "tableau", fields, y)
    swapped = by_formula("rk2", "tableau", fields, y, swapped=True)
    assert np.abs(true - swapped).max() > 0.1
    reverse, state = np.eye(3), y
    for F in fields:
        state, factor = vector_block("rk2", "tableau", F, state)
        reverse = reverse @ factor
    assert np.abs(true - reverse).max() > 0.1


def test_small_slopes_vanish_slower_with_half_the_weight() -> None:
    """Why the paper looks at it: where 0 < g < 1, (1 + g) / 2 > g, so RK2 keeps more of it."""
    F = ScalarField(a=-0.4, b=1.0, c=0.0)
    gradients = {}
    for gamma in ("tableau", "ones"):
        start = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
        y = start
        for _ in range(20):
            y, _ = make_solver("rk2", gamma).step(F, y)
        (gradients[gamma],) = torch.autograd.grad(y, start)
    assert 0 < 100 * gradients["ones"] < gradients["tableau"] < 1
