"""Parameters of their own for the stages of a block: counted, placed and learned by each stage."""

from typing import Any

import pytest
import torch
from torch import Tensor

from kutta.model import LanguageModel, Stack, TranslationModel
from kutta.model.field import Context, Sublayer
from kutta.model.grow import grow
from kutta.model.stack import Layer
from kutta.model.weights import fill, own_tensors
from kutta.ode import METHODS, TABLEAUX
from tests.model.shapes import changed, shape_of

D, FFN, HEADS, CLIP, LAYERS, VOCABULARY = 12, 20, 3, 2, 2, 17
SHAPE = shape_of(D, FFN, HEADS, layers=LAYERS, clip=CLIP)
SEPARATE = changed(SHAPE, stage_parameters="separate")

# A norm has 2 D numbers, a projection from n to m has m (n + 1).
SAN = 2 * D + 3 * D * (D + 1) + D * (D + 1) + (2 * CLIP + 1) * D // HEADS
CROSS = 2 * D + D * (D + 1) + 2 * D * (D + 1) + D * (D + 1)
FEED = 2 * D + FFN * (D + 1) + D * (FFN + 1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(8)


def count(stack: Stack) -> int:
    return sum(parameter.numel() for parameter in stack.parameters())


@pytest.mark.parametrize(
    ("settings", "layer"),
    [
        ({"method": "euler"}, SAN + FEED),
        ({"method": "leapfrog"}, SAN + FEED),
        ({"method": "rk2"}, 2 * (SAN + FEED)),
        ({"method": "rk2", "gamma": "learned"}, 2 * (SAN + FEED) + 2),
        ({"method": "rk4"}, 4 * (SAN + FEED)),
        ({"method": "polynet"}, 2 * (SAN + FEED)),
        ({"method": "rk2", "cross": True}, 2 * (SAN + CROSS + FEED)),
        ({"method": "rk2", "placement": "san/ffn", "cross": True}, 2 * (SAN + CROSS + FEED)),
        ({"method": "rk4", "placement": "san", "cross": True}, 4 * (SAN + CROSS) + FEED),
        ({"method": "rk4", "placement": "ffn", "cross": True}, SAN + CROSS + 4 * FEED),
        ({"method": "rk2", "placement": "macaron"}, 2 * (FEED + SAN + FEED)),
    ],
    ids=str,
)
def test_the_parameters_by_hand(settings: dict[str, Any], layer: int) -> None:
    norm = 2 * D
    assert count(Stack(changed(SEPARATE, **settings))) == LAYERS * layer + norm
    shared = Stack(changed(SEPARATE, **settings, share_layers=True))
    of_gamma = 2 if settings.get("gamma") == "learned" else 0
    assert count(shared) == layer + (LAYERS - 1) * of_gamma + norm


def test_a_predictor_corrector_has_parameters_for_its_correction_too() -> None:
    pc2 = Stack(changed(SEPARATE, method="pc2"))
    solvers = sum(p.numel() for name, p in pc2.named_parameters() if "solvers" in name)
    assert count(pc2) == LAYERS * 3 * (SAN + FEED) + 2 * D + solvers


def equal_stages(separate: Any, shared: Any) -> None:
    """Give every stage of one model the parameters that all stages of the other have."""
    given = own_tensors(shared)
    with torch.no_grad():
        for name, tensor in own_tensors(separate).items():
            tensor.copy_(given[name_of_all(name)])


def name_of_all(name: str) -> str:
    """layers.0.stages.3.san.norm.weight -> layers.0.san.norm.weight."""
    before, stages, after = name.partition(".stages.")
    return f"{before}.{after.partition('.')[2]}" if stages else name


def models(**settings: Any) -> tuple[TranslationModel, TranslationModel]:
    """A model with separate parameters and one with shared ones, the same in all stages."""
    made: list[TranslationModel] = []
    for stages in ("separate", "shared"):
        encoder = changed(SHAPE, stage_parameters=stages, **settings)
        decoder = changed(encoder, cross=True)
        made.append(TranslationModel(encoder, decoder, VOCABULARY, VOCABULARY, shared=True).eval())
    separate, shared = made
    with torch.no_grad():
        for parameter in shared.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    equal_stages(separate, shared)
    return separate, shared


def batch() -> tuple[Tensor, Tensor]:
    source = torch.randint(4, VOCABULARY, (3, 6))
    source[1, 4:] = 0  # padding
    return source, torch.randint(4, VOCABULARY, (3, 5))


PLACED = [("rk2", placement) for placement in ("san/ffn", "san", "ffn", "macaron")]


@pytest.mark.parametrize(("method", "placement"), [*((m, "san+ffn") for m in METHODS), *PLACED])
def test_stages_of_equal_parameters_are_the_shared_model_to_the_last_bit(
    method: str, placement: str
) -> None:
    own = TABLEAUX["kutta3"] if method == "custom" else None
    separate, shared = models(method=method, placement=placement, tableau=own)
    source, target = batch()
    assert torch.equal(separate(source, target), shared(source, target))


def test_the_gradients_of_equal_stages_add_up_to_that_of_the_shared_model() -> None:
    separate, shared = models(method="rk4")
    source, target = batch()
    for model in (separate, shared):
        (model(source, target) ** 3).sum().backward()
    sums = {name: torch.zeros_like(p) for name, p in shared.named_parameters()}
    for name, parameter in separate.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.any(), name
        sums[name_of_all(name)] += parameter.grad
    for name, parameter in shared.named_parameters():
        torch.testing.assert_close(sums[name], parameter.grad, rtol=1e-3, atol=1e-3)


def F(sublayers: list[Sublayer], y: Tensor) -> Tensor:
    """What the sublayers of one stage add to y when they follow each other."""
    after = y
    for sublayer in sublayers:
        after = after + sublayer(after, Context())
    return after - y


def stage(layer: Layer, number: int) -> list[Sublayer]:
    """Attention and feed-forward of the number-th evaluation, by the names of their parameters."""
    where = layer if number == 1 else layer.get_submodule(f"stages.{number}")
    return [where.get_submodule(name) for name in ("san", "ffn")]  # type: ignore[misc]


def test_evaluation_i_takes_the_parameters_of_stage_i() -> None:
    rk2, rk4 = (Stack(changed(SEPARATE, method=m, clip=0)).double().eval() for m in ("rk2", "rk4"))
    y = torch.randn(5, 3, D, dtype=torch.float64)
    expected = y
    for layer in rk2.each_layer():
        F1 = F(stage(layer, 1), expected)
        F2 = F(stage(layer, 2), expected + F1)
        expected = expected + (F1 + F2) / 2
    torch.testing.assert_close(rk2(y, Context()), rk2.norm(expected))
    expected = y
    for layer in rk4.each_layer():
        F1 = F(stage(layer, 1), expected)
        F2 = F(stage(layer, 2), expected + F1 / 2)
        F3 = F(stage(layer, 3), expected + F2 / 2)
        F4 = F(stage(layer, 4), expected + F3)
        expected = expected + (F1 + 2 * F2 + 2 * F3 + F4) / 6
    torch.testing.assert_close(rk4(y, Context()), rk4.norm(expected))


@pytest.mark.parametrize("method", ["euler", "leapfrog", "dlcl"])
def test_with_one_evaluation_it_is_the_same_model(method: str) -> None:
    made: list[LanguageModel] = []
    for stages in ("shared", "separate"):
        torch.manual_seed(3)
        shape = changed(SHAPE, method=method, stage_parameters=stages)
        made.append(LanguageModel(shape, VOCABULARY).eval())
    shared, separate = (own_tensors(model) for model in made)
    assert shared.keys() == separate.keys()
    assert all(torch.equal(shared[name], separate[name]) for name in shared)


def test_a_shared_model_has_no_name_of_a_stage_and_a_separate_one_has_all_of_its_names() -> None:
    shared, separate = (Stack(changed(s, method="rk4")).state_dict() for s in (SHAPE, SEPARATE))
    assert not any("stages" in name for name in shared)
    later = {name for name in separate if ".stages." in name}
    assert separate.keys() - later == shared.keys()
    numbers = {name.partition(".stages.")[2].partition(".")[0] for name in later}
    assert numbers == {"2", "3", "4"}


def test_rows_of_a_decoder_can_be_chosen() -> None:
    """Each stage reads the source through a projection of its own: all of them are reordered."""
    shape = changed(SEPARATE, method="rk2", cross=True)
    model = TranslationModel(SEPARATE, shape, VOCABULARY, VOCABULARY, shared=True).eval()
    source, target = batch()
    rows = torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        state = model.start(model.encode(source))
        for column in target[:, :3].unbind(1):
            model.step(column, state)
        state.select(rows)
        found = model.step(target[rows, 3], state)
        expected = model.project(model(source[rows], target[rows, :4]))[-1]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)


@torch.no_grad()
def test_every_stage_is_drawn_as_usual() -> None:
    model = LanguageModel(changed(SEPARATE, d_model=96, ffn=192, method="rk4", layers=1), 17)
    (layer,) = model.decoder.each_layer()
    parts = [stage(layer, number) for number in (1, 2, 3, 4)]
    bound = (6 / (2 * 96)) ** 0.5  # Xavier's, of the query, key and value projections
    drawn = [san.attention.qkv.weight for san, _ in parts]
    for weight in drawn:
        assert weight.abs().max() <= bound
        assert weight.std() == pytest.approx(bound / 3**0.5, rel=0.02)
    for i, weight in enumerate(drawn):
        assert not any(torch.equal(weight, other) for other in drawn[:i])
    assert all(not ffn.up.bias.any() for _, ffn in parts)


@torch.no_grad()
def test_depth_scaled_initialisation_scales_every_stage() -> None:
    shape = changed(SEPARATE, d_model=96, heads=2, method="rk2", init="depth-scaled", layers=4)
    first, *_, last = LanguageModel(shape, VOCABULARY).decoder.each_layer()
    for number in (1, 2):
        deviations = [stage(layer, number)[1].up.weight.std() for layer in (first, last)]
        assert deviations[1] / deviations[0] == pytest.approx(0.5, rel=0.1)  # 1 / sqrt(4)


def test_a_grown_model_halves_the_increments_of_every_stage() -> None:
    shallow = LanguageModel(changed(SEPARATE, method="rk2", layers=1), VOCABULARY).eval()
    deep = LanguageModel(changed(SEPARATE, method="rk2", layers=2), VOCABULARY).eval()
    tensors = grow(own_tensors(shallow), {"decoder": 1}, deep)
    fill(deep, tensors, "here")
    before = own_tensors(shallow)
    for layer in (0, 1):
        for at in ("san.attention.out", "stages.2.san.attention.out", "stages.2.ffn.down"):
            half = tensors[f"decoder.layers.{layer}.{at}.weight"]
            torch.testing.assert_close(2 * half, before[f"decoder.layers.0.{at}.weight"])
        same = f"decoder.layers.{layer}.stages.2.ffn.up.weight"
        assert torch.equal(tensors[same], before["decoder.layers.0.stages.2.ffn.up.weight"])
