"""Recomputation: the same gradients to the last bit, dropout and all, and far less kept."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from kutta.model import LanguageModel, TextModel, TranslationModel
from kutta.model.initialise import profile_admin
from kutta.model.stack import Layer
from kutta.ode import METHODS, TABLEAUX
from tests.model.shapes import changed, shape_of

VOCABULARY = 19
SHAPE = shape_of(12, 20, 3, layers=3, clip=2, dropout=0.3, attention_dropout=0.2)
SOURCE = torch.tensor([[5, 9, 4, 12, 3, 0], [8, 8, 17, 6, 11, 3]])
TARGET = torch.tensor([[2, 7, 13, 4], [2, 10, 6, 0]])


def translation(**settings: object) -> TranslationModel:
    """The settings are the encoder's; the decoder takes those that are not about the method."""
    own = {"method", "gamma", "tableau"}
    encoder = changed(SHAPE, **settings)
    common = {name: value for name, value in settings.items() if name not in own}
    decoder = changed(SHAPE, cross=True, **common)
    return TranslationModel(encoder, decoder, VOCABULARY, VOCABULARY, shared=True)


def two_sided(method: str) -> TranslationModel:
    """The method in the decoder too, where cross-attention is part of every stage."""
    encoder, decoder = (changed(SHAPE, method=method, cross=cross) for cross in (False, True))
    return TranslationModel(encoder, decoder, VOCABULARY, VOCABULARY, shared=False)


def set_recompute(model: nn.Module, on: bool) -> None:
    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.recompute = on


def gradients(model: TextModel, recompute: bool) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """The output in training, the gradient of each parameter, and the generator afterwards."""
    set_recompute(model, recompute)
    model.train()
    model.zero_grad()
    torch.manual_seed(5)
    hidden = model(SOURCE, TARGET)
    drawn = torch.get_rng_state()
    hidden.square().sum().backward()
    assert torch.equal(torch.get_rng_state(), drawn), "the backward pass drew numbers"
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return hidden.detach(), found, drawn


def assert_same(model: TextModel) -> None:
    kept, again = gradients(model, False), gradients(model, True)
    assert torch.equal(kept[0], again[0])
    assert torch.equal(kept[2], again[2]), "what follows would be drawn otherwise"
    assert kept[1].keys() == again[1].keys()
    for name in kept[1]:
        assert torch.equal(kept[1][name], again[1][name]), name
    assert any(gradient.any() for gradient in again[1].values())


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(4)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_identical_for_every_method(method: str) -> None:
    own = TABLEAUX["kutta3"] if method == "custom" else None
    assert_same(translation(method=method, tableau=own))


@pytest.mark.parametrize("gamma", ["ones", "learned", "gated", "ema"])
def test_gradients_are_identical_for_every_gamma(gamma: str) -> None:
    assert_same(translation(method="rk2", gamma=gamma))


MODELS: dict[str, Callable[[], TextModel]] = {
    "rk2 in the decoder": lambda: two_sided("rk2"),
    "rk4 in the decoder": lambda: two_sided("rk4"),
    "dlcl in the decoder": lambda: two_sided("dlcl"),
    "post-norm": lambda: translation(norm="post"),
    "admin": lambda: translation(norm="post", init="admin"),
    "layer_drop": lambda: translation(method="rk2", layer_drop=0.5, layers=6),
    "shared layers": lambda: translation(method="rk2", gamma="learned", share_layers=True),
    "shared gamma": lambda: translation(method="rk2", gamma="learned", share_gamma=True),
    "separate stages": lambda: translation(method="rk4", stage_parameters="separate"),
    "release": lambda: translation(method="rk2", replicate="release"),
    "macaron": lambda: translation(method="rk2", placement="macaron"),
    "san": lambda: translation(method="rk4", placement="san"),
    "no relative positions": lambda: translation(method="rk4", clip=0),
    "language model": lambda: LanguageModel(changed(SHAPE, method="rk4"), VOCABULARY),
    "language model, multistep": lambda: LanguageModel(
        changed(SHAPE, method="multistep"), VOCABULARY
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_identical_for_every_kind_of_model(name: str) -> None:
    model = MODELS[name]()
    profile_admin(model, SOURCE, TARGET)
    assert_same(model)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_gradients_are_identical_in_lower_precision(precision: torch.dtype) -> None:
    """The second computation takes place outside autocast's block, and must know of it."""
    model = translation(method="rk2")
    found: list[dict[str, Tensor]] = []
    for recompute in (False, True):
        set_recompute(model, recompute)
        model.zero_grad()
        torch.manual_seed(5)
        with torch.autocast("cpu", precision):
            hidden = model(SOURCE, TARGET)
        hidden.float().square().sum().backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    for name in found[0]:
        assert torch.equal(found[0][name], found[1][name]), name


def test_nothing_is_computed_again_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*inputs: object, **settings: object) -> None:
        raise AssertionError("recomputed")

    monkeypatch.setattr("kutta.model.stack.checkpoint", refuse)
    model = translation(method="rk2")
    set_recompute(model, True)
    with torch.no_grad():
        model(SOURCE, TARGET)
    with pytest.raises(AssertionError, match="recomputed"):
        model(SOURCE, TARGET)


# ---- memory ---------------------------------------------------------------------------------


def kept_bytes(model: TextModel, source: Tensor, target: Tensor) -> int:
    """The size of all that autograd keeps of a forward pass, parameters left out."""
    seen: dict[int, tuple[int, Tensor]] = {}  # tensors are held, so that no address comes twice
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            seen[storage.data_ptr()] = storage.nbytes(), tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        hidden = model(source, target)
    assert hidden.requires_grad
    return sum(size for size, _ in seen.values())


def most_bytes(model: TextModel, source: Tensor, target: Tensor) -> int:
    """What is held at worst: all that is kept, and the stages of the one layer in hand.

    In the backward pass a recomputed layer is for a moment kept as a whole.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, Layer)]
    if not layers[0].recompute:
        return kept_bytes(model, source, target)
    kept = kept_bytes(model, source, target)
    within: list[int] = []
    for layer in layers:
        layer.recompute = False
        within.append(kept_bytes(model, source, target) - kept)
        layer.recompute = True
    return kept + max(within)


def base_like(method: str, layers: int = 6) -> tuple[TranslationModel, Tensor, Tensor]:
    """The base preset at a quarter of its width; one sentence length, 512 tokens."""
    shape = shape_of(128, 512, 2, layers=layers)
    encoder, decoder = changed(shape, method=method), changed(shape, cross=True)
    model = TranslationModel(encoder, decoder, 50, 50, shared=True).train()
    draw = torch.Generator().manual_seed(2)
    source, target = (torch.randint(4, 50, (16, 32), generator=draw) for _ in range(2))
    return model, source, target


@pytest.mark.parametrize("method", ["rk2", "rk4"])
def test_a_recomputed_method_needs_no_more_memory_than_residual(method: str) -> None:
    residual = most_bytes(*base_like("euler"))
    plain, source, target = base_like(method)
    assert most_bytes(plain, source, target) > 1.25 * residual, "there is nothing to win"
    set_recompute(plain, True)
    assert most_bytes(plain, source, target) <= 1.25 * residual


def test_of_a_recomputed_layer_only_y_is_kept() -> None:
    """One layer more on both sides keeps two more y (32, 16, 128), whatever its stages hold."""
    kept: list[int] = []
    for layers in (5, 6):
        model, source, target = base_like("rk4", layers)
        set_recompute(model, True)
        kept.append(kept_bytes(model, source, target))
    assert kept[1] - kept[0] == 2 * (32 * 16 * 128 * 4)
