"""Macaron: half an FFN, attention, half an FFN is Strang's splitting of dy/dt = A y + B y."""

import math

import pytest
import torch
from torch import Tensor, nn

from kutta.model import PLACEMENTS, Stack
from kutta.model.field import Context
from tests.model.shapes import changed, shape_of

SHAPE = shape_of(6, 10, 2, layers=1, clip=0, placement="macaron")


class LinearField(nn.Module):
    """F(y) = M y, in the place of a sublayer."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = matrix

    def forward(self, y: Tensor, context: Context, cache: object = None) -> Tensor:
        return y @ self.matrix.T


def one_layer(placement: str, method: str, A: Tensor, B: Tensor) -> Tensor:
    """The matrix that one layer applies to y, with attention A y and feed-forward B y."""
    stack = Stack(changed(SHAPE, placement=placement, method=method)).double()
    layer = next(stack.each_layer())
    layer.san = LinearField(A)
    layer.ffn = LinearField(B)
    if placement == "macaron":
        layer.ffn_before = LinearField(B)
    rows = torch.eye(6, dtype=torch.float64)[:, None]
    y, _ = layer(rows, (), Context())
    return y[:, 0].T


def matrices() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    A, B = torch.randn(2, 6, 6, generator=generator, dtype=torch.float64) / 3
    assert torch.linalg.matrix_norm(A @ B - B @ A) > 0.5  # they do not commute
    return A, B


def local_order(placement: str) -> float:
    """How fast the error of one step vanishes with its length h: the exponent of h."""
    A, B = matrices()
    errors = []
    for h in (0.1, 0.05):
        exact = torch.linalg.matrix_exp(h * (A + B))
        # RK4 solves each part to O(h^5), so what is left is the error of the splitting.
        errors.append(torch.linalg.matrix_norm(one_layer(placement, "rk4", h * A, h * B) - exact))
    return math.log2(errors[0] / errors[1])


def test_macaron_is_of_second_order_and_the_plain_sequence_of_first() -> None:
    assert local_order("macaron") == pytest.approx(3, abs=0.1)
    assert local_order("san/ffn") == pytest.approx(2, abs=0.1)


def test_parts_that_commute_are_split_without_error() -> None:
    A, _ = matrices()
    A = A / 10
    for placement in ("macaron", "san/ffn"):
        exact = torch.linalg.matrix_exp(A + A @ A)
        split = one_layer(placement, "rk4", A, A @ A)
        torch.testing.assert_close(split, exact, rtol=0, atol=1e-6)


def test_macaron_with_euler_is_the_formula_of_its_paper() -> None:
    A, B = matrices()
    one = torch.eye(6, dtype=torch.float64)
    expected = (one + B / 2) @ (one + A) @ (one + B / 2)
    torch.testing.assert_close(one_layer("macaron", "euler", A, B), expected)


def test_the_step_lengths_of_each_part_add_up_to_one_layer() -> None:
    for blocks in PLACEMENTS.values():
        lengths = {"san": 0.0, "ffn": 0.0}
        for block in blocks:
            for part in block.parts:
                lengths[part.removesuffix("_before")] += block.h
        assert lengths == {"san": 1.0, "ffn": 1.0}


@pytest.mark.parametrize("cross", [False, True])
def test_macaron_on_real_sublayers(cross: bool) -> None:
    """y + FFN1/2, then attention (in the decoder over itself, then over the source), y + FFN2/2."""
    torch.manual_seed(2)
    stack = Stack(changed(SHAPE, layers=2, cross=cross)).eval()
    y, memory = torch.randn(5, 3, 6), torch.randn(4, 3, 6)
    result = stack(y, Context(), memory if cross else None)
    for layer in stack.each_layer():
        y = y + 0.5 * layer.ffn_before(y, Context())
        y = y + layer.san(y, Context())
        if layer.cross is not None:
            y = y + layer.cross(y, Context(memory=layer.cross.attention.keys_values(memory)))
        y = y + 0.5 * layer.ffn(y, Context())
    assert torch.equal(result, stack.norm(y))
    assert layer.ffn.up.weight is not layer.ffn_before.up.weight
