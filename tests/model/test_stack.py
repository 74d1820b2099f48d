"""Stacks: every method and placement against its formula, written out with the sublayers."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kutta.errors import InputError
from kutta.model import PLACEMENTS, Stack, StackShape
from kutta.model.attention import relative_offsets
from kutta.model.dropout import Dropout
from kutta.model.field import Context
from kutta.model.stack import Layer
from kutta.ode import METHODS, TABLEAUX, ButcherTableau
from tests.model.shapes import changed, shape_of

T, B, S, D, HEADS, CLIP = 5, 3, 4, 12, 3, 2
OWN = ButcherTableau.own([["1/3"], [0, "2/3"]], ["1/4", 0, "3/4"])  # for the method "custom"
ENCODER = shape_of(D, 20, HEADS, layers=3, clip=CLIP, tableau=OWN)
DECODER = changed(ENCODER, cross=True)
SHAPES = pytest.mark.parametrize("shape", [ENCODER, DECODER], ids=["encoder", "decoder"])
COMBINATIONS = [
    (method, placement)
    for method in METHODS
    for placement in PLACEMENTS
    if not METHODS[method].looks_back or placement == "san+ffn"
]

Sublayer = Callable[[Tensor], Tensor]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(5)


def randomised(stack: Stack) -> Stack:
    """The stack in evaluation mode, all parameters random, norms and biases included."""
    for name, parameter in stack.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm.weight" in name else 0.0, std=0.3)
    return stack.eval()


def setting(shape: StackShape) -> tuple[Tensor, Context, Tensor | None]:
    """y (T, B, d), a context with masks, and a memory for decoders."""
    future = torch.full((T, T), -math.inf).triu(1)[:, None].expand(T, B * HEADS, T)
    memory_bias = torch.zeros(T, B * HEADS, S)
    memory_bias[:, :HEADS, 2:] = -math.inf  # the first sentence has two source tokens
    context = Context(future, relative_offsets(T, T, CLIP, torch.device("cpu")))
    if not shape.cross:
        return torch.randn(T, B, D), context, None
    return torch.randn(T, B, D), replace(context, memory_bias=memory_bias), torch.randn(S, B, D)


def sublayers(layer: Layer, context: Context, memory: Tensor | None) -> dict[str, list[Sublayer]]:
    """The attention part and the feed-forward part of a layer, as functions of y alone."""
    if layer.cross is not None and memory is not None:
        context = replace(context, memory=layer.cross.attention.keys_values(memory))
    san: list[Sublayer] = [lambda y: layer.san(y, context)]
    if layer.cross is not None:
        san.append(lambda y: layer.cross(y, context))
    before: list[Sublayer] = [lambda y: layer.ffn_before(y, context)]
    return {"ffn_before": before, "san": san, "ffn": [lambda y: layer.ffn(y, context)]}


def increment(parts: list[Sublayer]) -> Sublayer:
    """F of sublayers in sequence: where they take y, less y."""

    def F(y: Tensor) -> Tensor:
        after = y
        for part in parts:
            after = after + part(after)
        return after - y

    return F


def euler(F: Sublayer, y: Tensor) -> Tensor:
    return y + F(y)


def heun(F: Sublayer, y: Tensor) -> Tensor:
    F1 = F(y)
    F2 = F(y + F1)
    return y + F1 / 2 + F2 / 2


def runge(F: Sublayer, y: Tensor) -> Tensor:
    F1 = F(y)
    F2 = F(y + F1 / 2)
    F3 = F(y + F2 / 2)
    F4 = F(y + F3)
    return y + (F1 + 2 * F2 + 2 * F3 + F4) / 6


FORMULAS = {"euler": euler, "rk2": heun, "rk4": runge}


@SHAPES
@pytest.mark.parametrize("placement", [name for name in PLACEMENTS if name != "macaron"])
def test_euler_is_the_plain_pre_norm_loop_to_the_last_bit(
    shape: StackShape, placement: str
) -> None:
    stack = randomised(Stack(changed(shape, method="euler", placement=placement)))
    y, context, memory = setting(shape)
    result = stack(y, context, memory)
    for layer in stack.each_layer():
        parts = sublayers(layer, context, memory)
        for sublayer in (*parts["san"], *parts["ffn"]):
            y = y + sublayer(y)
    assert torch.equal(result, stack.norm(y))


@SHAPES
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("method", FORMULAS)
def test_each_placement_is_its_formula(shape: StackShape, placement: str, method: str) -> None:
    stack = randomised(Stack(changed(shape, method=method, placement=placement)))
    y, context, memory = setting(shape)
    result = stack(y, context, memory)
    chosen = FORMULAS[method]
    for layer in stack.each_layer():
        parts = sublayers(layer, context, memory)
        san, ffn = increment(parts["san"]), increment(parts["ffn"])
        if placement == "san+ffn":
            y = chosen(increment([*parts["san"], *parts["ffn"]]), y)
        elif placement == "san/ffn":
            y = chosen(ffn, chosen(san, y))
        elif placement == "san":
            y = euler(ffn, chosen(san, y))
        elif placement == "ffn":
            y = chosen(ffn, euler(san, y))
        else:
            before = increment(parts["ffn_before"])
            y = chosen(lambda y, F=before: F(y) / 2, y)
            y = chosen(lambda y, F=ffn: F(y) / 2, chosen(san, y))
    torch.testing.assert_close(result, stack.norm(y), rtol=1e-4, atol=1e-4)


@SHAPES
@pytest.mark.parametrize(("method", "placement"), COMBINATIONS)
def test_every_allowed_combination_depends_on_the_method(
    shape: StackShape, placement: str, method: str
) -> None:
    """With the same weights, no method or placement silently falls back to Euler."""
    stack = randomised(Stack(changed(shape, method=method, placement=placement)))
    plain = Stack(changed(shape, method="euler", placement=placement)).eval()
    plain.load_state_dict(stack.state_dict(), strict=False)
    arguments = setting(shape)
    difference = (stack(*arguments) - plain(*arguments)).abs().max()
    assert (difference > 1e-2) == (method != "euler")


def test_the_field_of_san_ffn_is_the_increment_of_the_paper() -> None:
    """u = SAN(LN1(y)); F(y) = u + FFN(LN2(y + u)); Leapfrog shows F itself: y0 + 2 F(y1)."""
    stack = randomised(Stack(changed(ENCODER, method="leapfrog", layers=2)))
    y0, context, _ = setting(ENCODER)

    def F(layer: Layer, y: Tensor) -> Tensor:
        u = layer.san(y, context)
        return u + layer.ffn(y + u, context)

    first, second = stack.each_layer()
    y1 = y0 + F(first, y0)
    y2 = y0 + 2 * F(second, y1)
    torch.testing.assert_close(stack(y0, context), stack.norm(y2), rtol=1e-5, atol=1e-5)


def test_polynet_applies_the_field_to_the_increment() -> None:
    stack = randomised(Stack(changed(ENCODER, method="polynet", placement="ffn", layers=1)))
    y, context, _ = setting(ENCODER)
    (layer,) = stack.each_layer()
    after = y + layer.san(y, context)
    first = layer.ffn(after, context)
    expected = stack.norm(after + first + layer.ffn(first, context))
    torch.testing.assert_close(stack(y, context), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", ["multistep", "dlcl"])
def test_learned_history_methods_start_as_euler(method: str) -> None:
    """And move away from it once their coefficients do."""
    stack, plain = Stack(changed(ENCODER, method=method)).eval(), Stack(ENCODER).eval()
    plain.load_state_dict(stack.state_dict(), strict=False)
    y, context, _ = setting(ENCODER)
    torch.testing.assert_close(stack(y, context), plain(y, context), rtol=1e-5, atol=1e-5)
    for name, parameter in stack.named_parameters():
        if "solvers" in name:
            parameter.data.mul_(0.5)
    assert (stack(y, context) - plain(y, context)).abs().max() > 1e-2


@SHAPES
def test_two_euler_layers_with_shared_weights_are_one_rk2_layer_with_gamma_one(
    shape: StackShape,
) -> None:
    two = Stack(changed(shape, layers=2)).eval()
    one = Stack(changed(shape, layers=1, method="rk2", gamma="ones")).eval()
    two.layers[1].load_state_dict(two.layers[0].state_dict())
    one.layers[0].load_state_dict(two.layers[0].state_dict())
    arguments = setting(shape)
    torch.testing.assert_close(one(*arguments), two(*arguments), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", TABLEAUX)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_learned_gamma_starts_as_gamma_one_to_the_last_bit(method: str, placement: str) -> None:
    shape = changed(ENCODER, method=method, placement=placement)
    learned = Stack(changed(shape, gamma="learned")).eval()
    ones = Stack(changed(shape, gamma="ones")).eval()
    ones.load_state_dict(learned.state_dict(), strict=False)
    y, context, _ = setting(ENCODER)
    if method == "euler" and placement == "san+ffn":
        # Without learned weights, Euler is taken one sublayer at a time: another order of sums.
        torch.testing.assert_close(learned(y, context), ones(y, context))
    else:
        assert torch.equal(learned(y, context), ones(y, context))


@pytest.mark.parametrize("method", METHODS)
def test_every_parameter_receives_a_gradient(method: str) -> None:
    gamma = "learned" if method in TABLEAUX or method == "custom" else "tableau"
    stack = randomised(Stack(changed(DECODER, method=method, gamma=gamma)))
    (stack(*setting(DECODER)) ** 3).sum().backward()
    for name, parameter in stack.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(("method", "placement"), COMBINATIONS)
def test_weights_are_named_by_sublayer_and_fit_every_method(method: str, placement: str) -> None:
    """Macaron has a second feed-forward part, all else is the same."""
    names = set(Stack(DECODER).state_dict())
    other = set(Stack(changed(DECODER, method=method, placement=placement)).state_dict())
    more = {name for name in other if "solvers" in name or "ffn_before" in name}
    assert names == other - more
    twice = {name.replace("ffn_before", "ffn") for name in more if "ffn_before" in name}
    assert twice == (
        {name for name in names if ".ffn." in name} if "macaron" in placement else set()
    )


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match="rk4"):
        Stack(changed(ENCODER, method="rk5"))


# Dropout and norms inside the field


def masks(method: str, placement: str, part: str) -> list[Tensor]:
    """Which elements of a sublayer's output were dropped, one tensor for every evaluation."""
    shape = changed(ENCODER, method=method, placement=placement, layers=1, dropout=0.5)
    stack = Stack(changed(shape, attention_dropout=0.0, relu_dropout=0.0)).train()
    seen: list[Tensor] = []
    dropout: Dropout = getattr(stack.layers[0], part).dropout
    dropout.register_forward_hook(lambda module, inputs, output: seen.append(output == 0))
    stack(*setting(ENCODER)[:2])
    return seen


@pytest.mark.parametrize("part", ["san", "ffn"])
@pytest.mark.parametrize("placement", ["san+ffn", "san/ffn"])
@pytest.mark.parametrize("method", ["rk2", "rk4", "three-eighths", "polynet"])
def test_dropout_is_redrawn_at_every_stage(method: str, placement: str, part: str) -> None:
    seen = masks(method, placement, part)
    assert len(seen) == (TABLEAUX[method].stages if method in TABLEAUX else 2)
    for i, mask in enumerate(seen):
        assert 0.25 < mask.double().mean() < 0.75
        assert all(not torch.equal(mask, other) for other in seen[:i])


def test_plain_sublayers_are_evaluated_once() -> None:
    assert len(masks("rk4", "san", "ffn")) == 1
    assert len(masks("rk4", "ffn", "san")) == 1
    assert len(masks("rk4", "ffn", "ffn")) == 4


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout", "relu_dropout"])
def test_each_kind_of_dropout_acts_in_training_only(kind: str) -> None:
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0, kind: 0.5}
    stack = Stack(changed(DECODER, method="rk2", **rates))
    arguments = setting(DECODER)
    assert not torch.equal(stack.train()(*arguments), stack(*arguments))
    assert torch.equal(stack.eval()(*arguments), stack(*arguments))
    torch.manual_seed(1)
    first = stack.train()(*arguments)
    torch.manual_seed(1)
    assert torch.equal(stack(*arguments), first)


@SHAPES
def test_there_is_a_norm_in_every_sublayer_and_one_at_the_end(shape: StackShape) -> None:
    stack = Stack(changed(shape, method="rk4"))
    norms = [m for m in stack.modules() if isinstance(m, torch.nn.LayerNorm)]
    assert len(norms) == shape.layers * (3 if shape.cross else 2) + 1
    assert all(norm.eps == 1e-5 for norm in norms)
    calls: list[Tensor] = []
    san = stack.layers[0].san
    san.norm.register_forward_hook(lambda module, inputs, output: calls.append(output))
    stack(*setting(shape))
    assert len(calls) == 4  # at every stage
    assert all(abs(output.mean()) < 1e-5 for output in calls)
