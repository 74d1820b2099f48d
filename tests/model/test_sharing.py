"""Universal Transformer and shared gamma: one object for all layers."""

import pytest
import torch
from torch import nn

from kutta.model import Stack
from kutta.model.field import Context
from kutta.ode import TABLEAUX, RungeKutta
from tests.model.shapes import changed, shape_of

SHAPE = shape_of(12, 20, 3, layers=4, clip=0)
SIZES = [1, 2, 6, 12]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(6)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("cross", [False, True])
def test_shared_layers_do_not_grow_with_depth(cross: bool) -> None:
    shape = changed(SHAPE, share_layers=True, cross=cross)
    assert len({count(Stack(changed(shape, layers=n))) for n in SIZES}) == 1
    assert count(Stack(changed(shape, layers=1))) == count(
        Stack(changed(shape, layers=1, share_layers=False))
    )


@pytest.mark.parametrize("placement", ["san+ffn", "san/ffn"])
def test_gamma_stays_per_block_unless_it_is_shared(placement: str) -> None:
    def own(**settings: object) -> int:
        learned = changed(SHAPE, method="rk4", gamma="learned", placement=placement, **settings)
        return count(Stack(learned)) - count(Stack(changed(learned, gamma="tableau")))

    blocks = 4 if placement == "san+ffn" else 8
    assert own(share_layers=True) == own() == blocks * 4
    assert own(share_layers=True, share_gamma=True) == own(share_gamma=True) == 4


def test_a_shared_euler_stack_is_so_many_steps_of_one_field() -> None:
    """dy/dt = F(y) with an F that does not know the depth: autonomous."""
    stack = Stack(changed(SHAPE, share_layers=True, layers=5)).eval()
    first = next(stack.each_layer())
    y = torch.randn(7, 3, 12)
    result = stack(y, Context())
    for _ in range(5):
        y = y + first.san(y, Context())
        y = y + first.ffn(y, Context())
    assert torch.equal(result, stack.norm(y))


def test_gradients_of_the_uses_add_up() -> None:
    """Against the same weights copied into layers of their own."""
    shared = Stack(changed(SHAPE, share_layers=True)).eval()
    apart = Stack(SHAPE).eval()
    apart.load_state_dict(shared.state_dict())
    y = torch.randn(7, 3, 12)
    for stack in (shared, apart):
        (stack(y, Context()) ** 3).sum().backward()
    of_apart = dict(apart.named_parameters())
    compared = 0
    for name, parameter in shared.named_parameters():
        if name.startswith("layers.0."):
            rest = name.removeprefix("layers.0.")
            uses = [of_apart[f"layers.{n}.{rest}"].grad for n in range(4)]
            torch.testing.assert_close(parameter.grad, sum(uses), rtol=1e-4, atol=1e-4)
            compared += 1
    assert compared == len(list(next(apart.each_layer()).parameters()))


def test_a_shared_gamma_is_the_weight_of_every_block_and_of_no_plain_step() -> None:
    shape = changed(SHAPE, method="rk2", gamma="learned", placement="san", share_gamma=True)
    stack = Stack(shape).eval()
    gammas = {name for name, _ in stack.named_parameters() if "solvers" in name}
    assert gammas == {"layers.0.solvers.0.learned_gamma"}
    solvers = [solver for layer in stack.each_layer() for _, solver in layer.steps()]
    assert len({id(solver) for solver in solvers}) == 1 + 4  # the chosen one, and Euler steps
    y, gamma = torch.randn(7, 3, 12), torch.tensor([0.3, 0.9])
    with torch.no_grad():
        solvers[0].learned_gamma.copy_(gamma)
    result = stack(y, Context())
    for layer in stack.each_layer():
        F1 = layer.san(y, Context())
        y = y + 0.3 * F1 + 0.9 * layer.san(y + F1, Context())
        y = y + layer.ffn(y, Context())
    torch.testing.assert_close(result, stack.norm(y))


@pytest.mark.parametrize("method", ["dlcl", "multistep", "rk2"])
def test_coefficients_that_are_not_gamma_stay_per_block(method: str) -> None:
    """DLCL's rows differ in length: sharing gamma must leave them alone."""
    plain, shared = (Stack(changed(SHAPE, method=method, share_gamma=s)) for s in (False, True))
    assert count(plain) == count(shared)
    shared.eval()(torch.randn(7, 3, 12), Context())


def test_a_stack_without_layers_is_its_norm() -> None:
    stack = Stack(changed(SHAPE, layers=0, share_layers=True, share_gamma=True, gamma="learned"))
    y = torch.randn(7, 3, 12)
    assert torch.equal(stack(y, Context()), stack.norm(y))


def test_gamma_starts_where_the_shape_says() -> None:
    for start, first in (("ones", [1.0, 1.0]), ("tableau", [0.5, 0.5])):
        stack = Stack(changed(SHAPE, method="rk2", gamma="learned", start=start))
        for layer in stack.each_layer():
            ((_, solver),) = layer.steps()
            assert isinstance(solver, RungeKutta)
            assert solver.learned_gamma.tolist() == first
            assert solver.evaluations == TABLEAUX["rk2"].stages
