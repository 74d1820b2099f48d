"""LayerDrop: whole layers are skipped at random in training, none otherwise."""

import pytest
import torch
from torch import Tensor

from kutta.model import Stack
from kutta.model.field import Context
from tests.model.shapes import changed, shape_of

SHAPE = shape_of(12, 20, 3, layers=6, clip=0, dropout=0.0, attention_dropout=0.0, relu_dropout=0.0)
Y = torch.randn(5, 3, 12, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(8)


def watched(p: float, **settings: object) -> tuple[Stack, list[int]]:
    """A stack, and the numbers of the layers that ran since the list was cleared."""
    stack, ran = Stack(changed(SHAPE, layer_drop=p, **settings)), []
    for number, layer in enumerate(stack.layers):
        layer.register_forward_hook(lambda *_, number=number: ran.append(number))
    return stack, ran


def apply(stack: Stack, numbers: list[int], y: Tensor = Y) -> Tensor:
    for number in numbers:
        y, _ = stack.layers[number](y, (), Context())
    return stack.norm(y)


def test_a_skipped_layer_leaves_y_as_it_is() -> None:
    stack, ran = watched(0.5)
    patterns = set()
    for _ in range(20):
        ran.clear()
        result = stack(Y, Context())
        numbers = list(ran)
        patterns.add(tuple(numbers))
        assert torch.equal(result, apply(stack, numbers))
    assert len(patterns) > 5


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_each_layer_is_skipped_with_probability_p(p: float) -> None:
    stack, ran = watched(p)
    passes = 400
    for _ in range(passes):
        stack(Y[:1, :1], Context())
    for number in range(6):
        skipped = 1 - ran.count(number) / passes
        assert abs(skipped - p) < 4.5 * (p * (1 - p) / passes) ** 0.5


def test_evaluation_runs_all_layers_and_draws_nothing() -> None:
    stack, ran = watched(0.9)
    state = torch.get_rng_state()
    result = stack.eval()(Y, Context())
    assert ran == [0, 1, 2, 3, 4, 5]
    assert torch.equal(result, apply(stack, list(range(6))))
    assert torch.equal(torch.get_rng_state(), state)


def test_without_it_training_draws_nothing_either() -> None:
    stack, ran = watched(0.0)
    state = torch.get_rng_state()
    stack.train()(Y, Context())
    assert ran == [0, 1, 2, 3, 4, 5]
    assert torch.equal(torch.get_rng_state(), state)


def test_one_number_is_drawn_per_layer() -> None:
    """So the layers of a step follow from the seed only, and a run can resume exactly."""
    stack, ran = watched(0.5)
    for number in range(10):
        ran.clear()
        torch.manual_seed(number)
        stack(Y, Context())
        after = torch.get_rng_state()
        torch.manual_seed(number)
        assert ran == [n for n in range(6) if torch.rand(()) >= 0.5]
        assert torch.equal(torch.get_rng_state(), after)


def test_skipped_layers_have_no_gradient_and_adam_leaves_them() -> None:
    stack, ran = watched(0.5)
    optimizer = torch.optim.Adam(stack.parameters(), fused=True)
    before = [[p.clone() for p in layer.parameters()] for layer in stack.layers]
    (stack(Y, Context()) ** 3).sum().backward()
    assert 0 < len(ran) < 6
    optimizer.step()
    for number, layer in enumerate(stack.layers):
        moved = any(
            not torch.equal(p, q) for p, q in zip(layer.parameters(), before[number], strict=True)
        )
        assert moved == (number in ran)
        assert all((p.grad is None) == (number not in ran) for p in layer.parameters())


def test_shared_layers_are_dropped_one_use_at_a_time() -> None:
    stack, ran = watched(0.5, share_layers=True)
    lengths = set()
    for _ in range(20):
        ran.clear()
        result = stack(Y, Context())
        lengths.add(len(ran))
        assert torch.equal(result, apply(stack, [0] * len(ran)))
    assert len(lengths) > 2
