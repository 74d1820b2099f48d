"""Growing a stack: k small steps follow the flow that one large step took."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from kutta.errors import InputError
from kutta.model import LanguageModel, Stack, TextModel, TranslationModel
from kutta.model.field import Context
from kutta.model.grow import grow
from kutta.model.weights import fill, own_tensors
from kutta.ode import METHODS
from tests.model.shapes import changed, shape_of

SHAPE = shape_of(12, 20, 3, layers=2, clip=2)
VOCABULARY = 17
DEPTHS = {"encoder": 2, "decoder": 2}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(14)


def translation(encoder: int, decoder: int, **settings: Any) -> TranslationModel:
    shape = changed(SHAPE, **settings)
    shapes = changed(shape, layers=encoder), changed(shape, layers=decoder, cross=True)
    model = TranslationModel(*shapes, VOCABULARY, VOCABULARY, shared=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 or "gate" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def grown(shallow: TextModel, deep: TextModel, depths: dict[str, int] = DEPTHS) -> TextModel:
    """`deep` with the weights of `shallow`."""
    fill(deep, grow(own_tensors(shallow), depths, deep), "the shallow model")
    return deep.eval()


def batch() -> tuple[Tensor, Tensor]:
    return torch.randint(4, VOCABULARY, (3, 6)), torch.randint(4, VOCABULARY, (3, 5))


SETTINGS: list[dict[str, Any]] = [
    {},
    {"method": "rk2", "gamma": "learned"},
    {"method": "rk2", "gamma": "gated"},
    {"method": "rk4", "gamma": "learned", "share_gamma": True},
    {"method": "rk4", "gamma": "ema", "share_layers": True},
    {"placement": "macaron"},
    {"method": "polynet", "placement": "ffn"},
]
EACH = pytest.mark.parametrize("settings", SETTINGS, ids=str)


@EACH
def test_the_same_depth_is_the_same_model_to_the_bit(settings: dict[str, Any]) -> None:
    shallow, same = translation(2, 2, **settings), translation(2, 2, **settings)
    source, target = batch()
    assert not torch.equal(shallow(source, target), same(source, target))
    assert torch.equal(grown(shallow, same)(source, target), shallow(source, target))


@EACH
@torch.no_grad()
def test_constant_increments_give_the_same_output(settings: dict[str, Any]) -> None:
    """With F constant there is no truncation error: one step or many, it is the same line."""
    shallow = translation(2, 2, **settings)
    for name, parameter in shallow.named_parameters():
        if name.endswith(("attention.out.weight", "down.weight")):
            parameter.zero_()
        if name.endswith(("attention.out.bias", "down.bias")):
            parameter.normal_()
    source, target = batch()
    deep = grown(shallow, translation(6, 4, **settings))
    torch.testing.assert_close(deep(source, target), shallow(source, target), rtol=1e-4, atol=1e-4)


def fine_solution(stack: Stack, y: Tensor, parts: int = 20) -> Tensor:
    """dy/dt = SAN(y) + FFN(y), each layer for a time of 1, by many small steps of RK4."""
    h = 1 / parts
    for layer in stack.each_layer():

        def F(y: Tensor, layer: Any = layer) -> Tensor:
            return layer.san(y, Context()) + layer.ffn(y, Context())

        for _ in range(parts):
            k1 = F(y)
            k2 = F(y + h / 2 * k1)
            k3 = F(y + h / 2 * k2)
            k4 = F(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return stack.norm(y)


@pytest.mark.parametrize(("method", "placement"), [("euler", "san+ffn"), ("rk2", "san/ffn")])
@torch.no_grad()
def test_each_doubling_halves_the_distance_to_the_flow(method: str, placement: str) -> None:
    """Splitting attention from feed-forward is of first order, whatever solves the parts."""
    settings = {"method": method, "placement": placement, "clip": 0}
    shallow = translation(2, 2, **settings).double()
    y = 3 * torch.randn(7, 4, 12, dtype=torch.float64)
    exact = fine_solution(shallow.encoder, y)
    errors = []
    for k in (1, 2, 4, 8, 16):
        deep = grown(shallow, translation(2 * k, 2, **settings).double())
        errors.append((deep.encoder(y, Context()) - exact).norm().item())
    for coarse, fine in pairwise(errors):
        assert fine < 0.75 * coarse
    assert errors[-2] / errors[-1] == pytest.approx(2, rel=0.1)


@torch.no_grad()
def test_a_shared_stack_grows_by_taking_more_and_smaller_steps() -> None:
    """No tensor is added: the layer is the same object, its increment half as long."""
    settings = {"share_layers": True, "clip": 0}
    shallow, deep = translation(2, 2, **settings), translation(4, 2, **settings)
    assert own_tensors(shallow).keys() == own_tensors(deep).keys()
    grown(shallow, deep)
    y = torch.randn(7, 4, 12)
    result = deep.encoder(y, Context())
    first = next(shallow.encoder.each_layer())
    for _ in range(4):
        y = y + first.san(y, Context()) / 2
        y = y + first.ffn(y, Context()) / 2
    torch.testing.assert_close(result, shallow.encoder.norm(y), rtol=1e-4, atol=1e-5)


def test_each_layer_takes_after_the_one_it_was_copied_from() -> None:
    shallow = translation(2, 2, method="rk2", gamma="learned")
    before, deep = own_tensors(shallow), translation(6, 2, method="rk2", gamma="learned")
    tensors = grow(before, DEPTHS, deep)
    assert tensors.keys() == own_tensors(deep).keys()
    for number in range(6):
        for name, ratio in (
            ("san.attention.out.weight", 1 / 3),
            ("san.attention.out.bias", 1 / 3),
            ("ffn.down.weight", 1 / 3),
            ("ffn.down.bias", 1 / 3),
            ("san.attention.qkv.weight", 1),
            ("san.attention.relative", 1),
            ("ffn.up.weight", 1),
            ("ffn.norm.weight", 1),
            ("solvers.0.learned_gamma", 1),
        ):
            origin = before[f"encoder.layers.{number // 3}.{name}"]
            torch.testing.assert_close(tensors[f"encoder.layers.{number}.{name}"], origin * ratio)
    for name, tensor in before.items():  # the decoder did not grow, nor did all around it
        if not name.startswith("encoder.layers"):
            assert torch.equal(tensors[name], tensor)


def test_cross_attention_and_both_halves_of_macaron_are_divided() -> None:
    shallow, deep = translation(2, 2, placement="macaron"), translation(2, 4, placement="macaron")
    before, tensors = own_tensors(shallow), grow(own_tensors(shallow), DEPTHS, deep)
    for name in ("san.attention.out", "cross.attention.out", "ffn_before.down", "ffn.down"):
        for kind in ("weight", "bias"):
            half = tensors[f"decoder.layers.3.{name}.{kind}"]
            torch.testing.assert_close(half * 2, before[f"decoder.layers.1.{name}.{kind}"])


@torch.no_grad()
def test_a_gate_opens_as_far_as_before() -> None:
    """It reads the stages, which are k times smaller: sigmoid(W k [F1; F2] / k + c)."""
    shallow = LanguageModel(changed(SHAPE, method="rk2", gamma="gated", clip=0), VOCABULARY)
    deep = LanguageModel(changed(SHAPE, method="rk2", gamma="gated", clip=0, layers=6), VOCABULARY)
    for name, parameter in shallow.named_parameters():
        if "gate" in name:
            parameter.normal_()
    grown(shallow, deep, {"decoder": 2})
    stages = [torch.randn(5, 3, 12), torch.randn(5, 3, 12)]
    gates = []
    for model, k in ((shallow, 1), (deep, 3)):
        ((_, solver),) = next(model.decoder.each_layer()).steps()
        gates.append(solver.weights([stage / k for stage in stages])[0])
    torch.testing.assert_close(*gates)
    assert gates[0].std() > 0.1


def test_a_language_model_grows() -> None:
    shallow = LanguageModel(SHAPE, VOCABULARY).eval()
    deep = LanguageModel(changed(SHAPE, layers=4), VOCABULARY)
    source, target = batch()
    grown(shallow, deep, {"encoder": 0, "decoder": 2})
    near = (deep(source, target) - shallow(source, target)).norm()
    far = LanguageModel(changed(SHAPE, layers=4), VOCABULARY).eval()
    assert near < 0.5 * (far(source, target) - shallow(source, target)).norm()


# What cannot grow


@pytest.mark.parametrize(("encoder", "decoder", "name"), [(3, 2, "encoder"), (2, 1, "decoder")])
def test_a_depth_that_is_no_multiple_is_refused(encoder: int, decoder: int, name: str) -> None:
    depth = encoder if name == "encoder" else decoder
    with pytest.raises(
        InputError, match=rf"The {name} cannot grow from 2 to {depth} .*model.{name}_layers"
    ):
        grow(own_tensors(translation(2, 2)), DEPTHS, translation(encoder, decoder))


@pytest.mark.parametrize("method", [n for n, m in METHODS.items() if m.looks_back])
def test_methods_that_look_back_do_not_grow_but_may_be_copied(method: str) -> None:
    shallow = translation(2, 2, method=method)
    with pytest.raises(InputError, match=f"from 2 to 4 layers: {method} looks back"):
        grow(own_tensors(shallow), DEPTHS, translation(4, 2, method=method))
    source, target = batch()
    copied = grown(shallow, translation(2, 2, method=method))
    assert torch.equal(copied(source, target), shallow(source, target))


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"replicate": "release"}, "dense connections"), ({"norm": "post"}, "post-norm")],
)
def test_what_is_not_a_flow_does_not_grow(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        grow(own_tensors(translation(2, 2, **settings)), DEPTHS, translation(4, 2, **settings))


def test_models_that_differ_in_more_than_depth_are_refused() -> None:
    shallow, language = translation(2, 2), LanguageModel(SHAPE, VOCABULARY)
    with pytest.raises(InputError, match=r"has the tensor .*cross.*no place"):
        grow(own_tensors(shallow), DEPTHS, language)
    with pytest.raises(InputError, match="encoder cannot grow from 0 to 2"):
        grow(own_tensors(language), {"decoder": 2}, shallow)
    with pytest.raises(InputError, match=r"layers\.1.*no place"):
        grow(own_tensors(shallow), DEPTHS, translation(2, 2, share_layers=True))
    wider = translation(4, 2, ffn=24)
    with pytest.raises(InputError, match="24"):
        fill(wider, grow(own_tensors(shallow), DEPTHS, wider), "the shallow model")
    learned = translation(4, 2, method="rk2", gamma="learned")
    with pytest.raises(InputError, match=r"lacks the tensor .*learned_gamma"):
        fill(learned, grow(own_tensors(shallow), DEPTHS, learned), "the shallow model")
