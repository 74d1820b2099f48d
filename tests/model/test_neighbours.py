"""What every variant of the stack has to do: decode with a cache, learn, be saved, be refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kutta.model import LanguageModel, TranslationModel
from kutta.model.weights import fill, own_tensors, read_shapes, read_tensors, write_tensors
from tests.model.shapes import changed, shape_of

VOCABULARY = 17
TINY = shape_of(12, 20, 3, layers=2, clip=2)
RK2 = {"method": "rk2", "gamma": "learned"}
VARIANTS: dict[str, dict[str, Any]] = {
    "share gamma": {**RK2, "share_gamma": True},
    "share gamma of all blocks": {**RK2, "share_gamma": True, "placement": "san/ffn"},
    "share gamma, gated": {"method": "rk2", "gamma": "gated", "share_gamma": True},
    "share layers": {"share_layers": True, "method": "rk4"},
    "share layers, gamma per layer": {**RK2, "share_layers": True},
    "share everything": {**RK2, "share_layers": True, "share_gamma": True},
    "separate stages": {**RK2, "stage_parameters": "separate"},
    "separate stages, rk4": {"method": "rk4", "stage_parameters": "separate"},
    "separate stages, pc2": {"method": "pc2", "stage_parameters": "separate"},
    "separate stages of the attention": {
        **RK2,
        "stage_parameters": "separate",
        "placement": "san",
    },
    "separate stages of the feed-forward": {
        **RK2,
        "stage_parameters": "separate",
        "placement": "ffn",
    },
    "separate stages, macaron": {**RK2, "stage_parameters": "separate", "placement": "macaron"},
    "separate stages, shared layers": {
        **RK2,
        "stage_parameters": "separate",
        "share_layers": True,
        "share_gamma": True,
    },
    "macaron": {"placement": "macaron"},
    "macaron, rk2": {**RK2, "placement": "macaron", "share_layers": True},
    "layer drop": {"layer_drop": 0.3, "method": "rk2"},
    "post-norm": {"norm": "post"},
    "post-norm macaron": {"norm": "post", "placement": "macaron"},
    "depth-scaled": {"init": "depth-scaled"},
    "admin": {"norm": "post", "init": "admin"},
    "admin, shared layers": {"norm": "post", "init": "admin", "share_layers": True},
    "release": {"replicate": "release"},
    "release, rk2": {**RK2, "replicate": "release"},
    "release, rk4": {"method": "rk4", "gamma": "ema", "replicate": "release"},
}
EACH = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(4)


def make(variant: dict[str, Any]) -> TranslationModel:
    """A model in evaluation mode whose norms, biases and coefficients are not at their start."""
    encoder = changed(TINY, **variant)
    decoder = changed(encoder, cross=True)
    model = TranslationModel(encoder, decoder, VOCABULARY, VOCABULARY, shared=True)
    return disturbed(model)


def disturbed(model: Any) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 2:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def batch() -> tuple[Tensor, Tensor]:
    source = torch.randint(4, VOCABULARY, (3, 6))
    source[1, 4:] = 0  # padding
    return source, torch.randint(4, VOCABULARY, (3, 5))


@EACH
@torch.no_grad()
def test_cached_decoding_equals_uncached(variant: dict[str, Any]) -> None:
    model, (source, target) = make(variant), batch()
    whole = model.project(model(source, target))
    state = model.start(model.encode(source))
    steps = torch.stack([model.step(target[:, t], state) for t in range(target.shape[1])])
    torch.testing.assert_close(steps, whole, rtol=1e-4, atol=2e-5)


@EACH
@torch.no_grad()
def test_a_language_model_decodes_with_a_cache_too(variant: dict[str, Any]) -> None:
    model = disturbed(LanguageModel(changed(TINY, **variant), VOCABULARY))
    source, target = batch()
    whole = model.project(model(source, target))
    state = model.start(len(target))
    steps = torch.stack([model.step(target[:, t], state) for t in range(target.shape[1])])
    torch.testing.assert_close(steps, whole, rtol=1e-4, atol=2e-5)


@EACH
def test_every_parameter_receives_a_gradient(variant: dict[str, Any]) -> None:
    model = make(variant)
    (model(*batch()) ** 3).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@EACH
def test_weights_survive_the_way_to_disk_and_are_stored_once(
    tmp_path: Path, variant: dict[str, Any]
) -> None:
    saved, loaded, (source, target) = make(variant), make(variant), batch()
    assert not torch.equal(saved(source, target), loaded(source, target))
    write_tensors(own_tensors(saved), tmp_path / "model.safetensors")
    fill(loaded, read_tensors(tmp_path / "model.safetensors"), str(tmp_path / "model.safetensors"))
    assert torch.equal(saved(source, target), loaded(source, target))
    shapes = read_shapes(tmp_path / "model.safetensors")
    assert shapes.keys() == {name for name, _ in saved.named_parameters()}
    assert shapes == {name: tuple(tensor.shape) for name, tensor in own_tensors(saved).items()}


@EACH
def test_a_few_updates_lower_the_loss(variant: dict[str, Any]) -> None:
    model, (source, target) = make(variant), batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)

    def loss() -> Tensor:
        logits = model.project(model(source, target))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.t().flatten())

    before = loss().item()
    for _ in range(6):
        model.train()
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        model.eval()
    assert loss().item() < 0.8 * before


@EACH
@torch.no_grad()
def test_bfloat16_stays_near(variant: dict[str, Any]) -> None:
    model, (source, target) = make(variant), batch()
    exact = model(source, target)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(source, target)
    torch.testing.assert_close(rough.float(), exact, rtol=0.1, atol=0.3)
