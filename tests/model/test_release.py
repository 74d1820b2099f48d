"""The authors' release: the layer's whole output as F, and dense connections around it."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from kutta.model import Stack
from kutta.model.field import Context
from kutta.model.stack import Layer
from tests.model.shapes import changed, shape_of

PAPER = shape_of(12, 20, 3, layers=2, clip=0)
SHAPE = changed(PAPER, replicate="release")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(12)


def randomised(stack: Stack) -> Stack:
    for name, parameter in stack.named_parameters():
        if parameter.dim() > 1 or "rows" not in name:
            nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.3)
        else:
            parameter.data += 0.2 * torch.randn_like(parameter)
    return stack.eval()


def output(layer: Layer, y: Tensor, memory: Tensor | None) -> Tensor:
    """G: the ordinary layer, its input included."""
    y = y + layer.san(y, Context())
    if layer.cross is not None:
        y = y + layer.cross(y, Context(memory=layer.cross.attention.keys_values(memory)))
    return y + layer.ffn(y, Context())


def euler(layer: Layer, y: Tensor, memory: Tensor | None) -> Tensor:
    return output(layer, y, memory)


def rk2(layer: Layer, y: Tensor, memory: Tensor | None) -> Tensor:
    k1 = output(layer, y, memory)
    k2 = output(layer, y + k1, memory)
    return y + (k1 + k2) / 2


def rk4(layer: Layer, y: Tensor, memory: Tensor | None) -> Tensor:
    k1 = output(layer, y, memory)
    k2 = output(layer, y + k1 / 2, memory)
    k3 = output(layer, y + k2 / 2, memory)
    k4 = output(layer, y + k3, memory)
    return y + (k1 + 2 * k2 + 2 * k3 + k4) / 6


FORMULAS = {"euler": euler, "rk2": rk2, "rk4": rk4}


def layer_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return (
        centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias
    )


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("method", FORMULAS)
@torch.no_grad()
def test_two_layers_written_out(method: str, cross: bool) -> None:
    stack = randomised(Stack(changed(SHAPE, method=method, cross=cross)))
    y, memory = torch.randn(5, 3, 12), torch.randn(4, 3, 12) if cross else None
    one, two = stack.each_layer()
    step = FORMULAS[method]
    W0, W1, W2 = stack.dense.rows
    x0 = y
    x1 = layer_norm(stack.dense.norms[0], step(one, W0[0] * x0, memory))
    x2 = layer_norm(stack.dense.norms[1], step(two, W1[0] * x0 + W1[1] * x1, memory))
    expected = layer_norm(stack.norm, W2[0] * x0 + W2[1] * x1 + W2[2] * x2)
    torch.testing.assert_close(stack(y, Context(), memory), expected, rtol=1e-4, atol=1e-4)


def test_learned_weights_weigh_whole_outputs() -> None:
    stack = Stack(changed(SHAPE, method="rk2", gamma="learned", layers=1)).eval()
    (layer,) = stack.each_layer()
    ((_, solver),) = layer.steps()
    solver.learned_gamma.data = torch.tensor([0.2, 0.7])
    y = torch.randn(5, 3, 12)
    k1 = output(layer, y, None)
    expected = y + 0.2 * k1 + 0.7 * output(layer, y + k1, None)
    result, _ = layer(y, (), Context())
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_rows_start_at_the_mean_and_only_layers_are_normed() -> None:
    stack = Stack(changed(SHAPE, layers=4))
    assert [row.tolist() for row in stack.dense.rows] == [
        pytest.approx([1 / (t + 1)] * (t + 1)) for t in range(5)
    ]
    assert len(stack.dense.norms) == 4
    y = torch.randn(5, 3, 12)
    first, history = stack.dense(y, ())
    assert torch.equal(first, y)
    assert torch.equal(history[0], y)


@pytest.mark.parametrize("cross", [False, True])
def test_euler_differs_from_the_paper_by_the_dense_connections_only(cross: bool) -> None:
    release, paper = Stack(changed(SHAPE, cross=cross)).eval(), Stack(changed(PAPER, cross=cross))
    y, memory = torch.randn(5, 3, 12), torch.randn(4, 3, 12) if cross else None
    own = {name: p for name, p in release.state_dict().items() if not name.startswith("dense")}
    paper.eval().load_state_dict(own)
    assert not torch.allclose(release(y, Context(), memory), paper(y, Context(), memory))
    release.dense = None
    assert torch.equal(release(y, Context(), memory), paper(y, Context(), memory))


@pytest.mark.parametrize(("method", "factor"), [("rk2", 5 / 2), ("rk4", 65 / 24)])
@torch.no_grad()
def test_without_dense_connections_every_block_multiplies_y(method: str, factor: float) -> None:
    """G = identity + F, so a block is about y + (1 + 2)/2 y for RK2: 2.5^36 after 36 layers.

    65/24 is RK4 at F(y) = y: 1 + 1 + 1/2 + 1/6 + 1/24.
    """
    stack = Stack(changed(SHAPE, method=method, layers=36)).eval()
    y = torch.randn(5, 3, 12)
    norms = [y.norm()]
    z = y
    for layer in stack.each_layer():
        z, _ = layer(z, (), Context())
        norms.append(z.norm())
    ratios = [(after / before).item() for before, after in pairwise(norms)]
    assert ratios[-1] == pytest.approx(factor, rel=1e-3)  # F, normed inside, is small beside y
    assert min(ratios) > 2.2
    assert norms[-1] / norms[0] > 2.2**36
    assert norms[-1] > torch.finfo(torch.float16).max  # half precision would overflow


@pytest.mark.parametrize("method", ["rk2", "rk4"])
@torch.no_grad()
def test_with_dense_connections_36_layers_stay_small(method: str) -> None:
    stack = Stack(changed(SHAPE, method=method, layers=36)).eval()
    inputs: list[float] = []
    for layer in stack.layers:
        layer.register_forward_pre_hook(lambda _, args: inputs.append(args[0].norm().item()))
    y = torch.randn(5, 3, 12)
    assert stack(y, Context()).isfinite().all()
    assert len(inputs) == 36
    assert max(inputs) < 2 * y.norm().item()
