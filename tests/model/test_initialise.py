"""The first draw of all parameters, post-norm layers, ADMIN, depth-scaled initialisation."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kutta.model import LanguageModel, Stack, TranslationModel
from kutta.model.field import Context
from kutta.model.initialise import profile_admin
from kutta.model.stack import Admin
from tests.model.shapes import changed, shape_of

QUIET: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0}
SHAPE = shape_of(24, 48, 3, layers=4, clip=2, norm="post", init="admin", **QUIET)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(10)


def translation(**settings: Any) -> TranslationModel:
    shape = changed(SHAPE, **settings)
    return TranslationModel(shape, changed(shape, cross=True), 40, 40, shared=False)


def batch() -> tuple[Tensor, Tensor]:
    source, target = torch.randint(4, 40, (8, 9)), torch.randint(4, 40, (8, 7))
    source[3, 5:] = 0
    return source, target


# Embeddings and output layer


@pytest.mark.parametrize("kind", ["language", "translation"])
def test_an_output_layer_of_its_own_is_drawn_from_a_normal_of_deviation_one_over_root_d(
    kind: str,
) -> None:
    """N(0, d^-1/2) as the embedding: moments of 64,000 draws, and not the same draws."""
    d, vocabulary = 64, 1000
    shape = shape_of(d, 8, 2, layers=1, clip=0)
    model: LanguageModel | TranslationModel = LanguageModel(shape, vocabulary)
    if kind == "translation":
        model = TranslationModel(shape, changed(shape, cross=True), 9, vocabulary, False, False)
    weight, embedding = model.output_weight.detach(), model.target_embedding.tokens.weight.detach()
    standard = weight * math.sqrt(d)
    assert standard.mean().item() == pytest.approx(0, abs=0.02)
    assert standard.std().item() == pytest.approx(1, rel=0.02)
    assert standard.pow(4).mean().item() == pytest.approx(3, rel=0.05), "a uniform draw has 1.8"
    rows = standard.std(dim=1)  # of each token, the mark of padding included
    assert rows.min().item() > 0.6
    assert embedding[0].abs().max() == 0
    assert torch.corrcoef(torch.stack([weight[1:].flatten(), embedding[1:].flatten()]))[
        0, 1
    ].item() == pytest.approx(0, abs=0.02)


# Post-norm


def test_post_norm_is_the_original_transformer_layer() -> None:
    """Against torch's own layer, with our projections sorted its way."""
    stack = Stack(changed(SHAPE, clip=0, init="xavier")).eval()
    for parameter in stack.parameters():
        nn.init.normal_(parameter, std=0.3)
    y = torch.randn(5, 3, 24)
    result = stack(y, Context())
    for layer in stack.each_layer():
        theirs = nn.TransformerEncoderLayer(24, 3, 48, dropout=0.0, norm_first=False).eval()
        attention = layer.san.attention
        with torch.no_grad():
            for name, ours in (
                ("in_proj_weight", attention.qkv.weight),
                ("in_proj_bias", attention.qkv.bias),
            ):
                by_head = ours.view(3, 3, 8, *ours.shape[1:])
                getattr(theirs.self_attn, name).copy_(by_head.transpose(0, 1).reshape(ours.shape))
        for module, same in (
            (theirs.self_attn.out_proj, attention.out),
            (theirs.norm1, layer.san.norm),
            (theirs.linear1, layer.ffn.up),
            (theirs.linear2, layer.ffn.down),
            (theirs.norm2, layer.ffn.norm),
        ):
            module.load_state_dict(same.state_dict())
        y = theirs(y)
    torch.testing.assert_close(result, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("init", ["xavier", "admin"])
def test_post_norm_in_the_decoder_norms_after_every_addition(init: str) -> None:
    stack = Stack(changed(SHAPE, cross=True, clip=0, init=init)).eval()
    for parameter in stack.parameters():
        nn.init.normal_(parameter, mean=0.5 if parameter.dim() == 1 else 0.0, std=0.3)
    y, memory = torch.randn(5, 3, 24), torch.randn(6, 3, 24)
    result = stack(y, Context(), memory)
    for layer in stack.each_layer():
        context = Context(memory=layer.cross.attention.keys_values(memory))
        for part, (_, solver) in zip(
            (layer.san, layer.cross, layer.ffn), layer.steps(), strict=True
        ):
            omega = solver.omega if init == "admin" else 1.0
            y = part.norm(omega * y + part.inner(y, context))
    torch.testing.assert_close(result, y)


def test_there_is_no_norm_after_a_post_norm_stack() -> None:
    pre, post = Stack(changed(SHAPE, norm="pre", init="xavier")), Stack(SHAPE)
    norms = [sum(isinstance(m, nn.LayerNorm) for m in stack.modules()) for stack in (pre, post)]
    assert norms == [9, 8]


# ADMIN


def by_hand(stack: Stack, y: Tensor, context: Context, memory: Tensor | None) -> list[float]:
    """Var f_i of a stack at omega = 1, written out."""
    variances = []
    for layer in stack.each_layer():
        if layer.cross is not None:
            context = replace(context, memory=layer.cross.attention.keys_values(memory))
        for part in (layer.ffn_before, layer.san, layer.cross, layer.ffn):
            if part is not None:
                h = 0.5 if layer.ffn_before is not None and hasattr(part, "up") else 1.0
                f = h * part.inner(y, context)
                variances.append(((f - f.mean()) ** 2).mean().item())
                y = part.norm(y + f)
    return variances


def omegas(stack: Stack) -> list[list[float]]:
    return [s.omega.tolist() for layer in stack.each_layer() for _, s in layer.steps()]


VARIANTS: list[dict[str, Any]] = [
    {},
    {"placement": "macaron"},
    {"share_layers": True},
    {"layer_drop": 0.5},
]


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@torch.no_grad()
def test_omega_is_the_deviation_of_the_sum_before_it(settings: dict[str, Any]) -> None:
    """omega_i = sqrt(1 + sum_{j<i} Var f_j) in each stack, from the embedding on."""
    model, (source, target) = translation(**settings), batch()
    profile_admin(model, source, target)
    found = [omegas(model.encoder), omegas(model.decoder)]
    for residual in (m for m in model.modules() if isinstance(m, Admin)):
        nn.init.ones_(residual.omega)
    model.eval()
    calls: list[tuple[Stack, tuple[Any, ...], dict[str, Any]]] = []
    hook = nn.Module.register_forward_pre_hook
    for stack in (model.encoder, model.decoder):
        hook(stack, lambda s, args, kwargs: calls.append((s, args, kwargs)), with_kwargs=True)
    model(source, target)
    for (stack, (y, context), kwargs), values in zip(calls, found, strict=True):
        total = 1.0
        variances = by_hand(stack, y, context, kwargs.get("memory"))
        for variance, omega in zip(variances, values, strict=True):
            assert omega == pytest.approx([math.sqrt(total)] * 24, rel=1e-4)
            total += variance
        assert total > 1.5


def shares(stack: Stack, y: Tensor) -> list[float]:
    """Of the variance of each sum omega y + f, the part that f brings."""
    found = []
    for layer in stack.each_layer():
        for part, (_, solver) in zip((layer.san, layer.ffn), layer.steps(), strict=True):
            shortcut, f = solver.omega * y, part.inner(y, Context())
            found.append((f.var() / (shortcut.var() + f.var())).item())
            y = part.norm(shortcut + f)
    return found


@torch.no_grad()
def test_the_share_of_a_branch_falls_with_depth() -> None:
    """In plain post-norm it stays about the same; with ADMIN f_i is one of i + 1 equal terms."""
    model, (source, target) = translation(layers=12, clip=0), batch()
    y = model.source_embedding(source)
    before = shares(model.encoder, y)
    profile_admin(model, source, target)
    after = shares(model.encoder, y)
    assert after[0] == before[0]
    assert sum(before[12:]) > 0.7 * sum(before[:12])
    assert sum(after[12:]) < 0.5 * sum(after[:12])
    assert max(after[12:]) < 3 / 12


def test_profiling_leaves_everything_else_as_it_was() -> None:
    model, (source, target) = translation(dropout=0.3, layer_drop=0.2), batch()
    model.eval()
    before = {name: p.clone() for name, p in model.named_parameters() if "omega" not in name}
    state = torch.get_rng_state()
    profile_admin(model, source, target)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in model.modules())
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters() if n in before)
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(m._forward_hooks for m in model.modules())
    first = [omegas(model.encoder), omegas(model.decoder)]
    profile_admin(model, source, target)  # it starts from omega = 1 each time
    assert [omegas(model.encoder), omegas(model.decoder)] == first


def test_profiling_a_language_model() -> None:
    model = LanguageModel(SHAPE, 40)
    profile_admin(model, torch.zeros(8, 0, dtype=torch.long), batch()[1])
    values = [value[0] for value in omegas(model.decoder)]
    assert values[0] == 1.0
    assert values == sorted(values)
    assert values[-1] > 1.2


def test_a_model_without_admin_is_left_alone() -> None:
    class Untouchable(nn.Module):
        def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
            raise AssertionError("nothing is to be run")

    profile_admin(Untouchable(), *batch())


# Depth-scaled initialisation


def test_depth_scaled_projections_shrink_with_the_root_of_their_depth() -> None:
    """The same draws as Xavier's, times 1/sqrt(l) in layer l of each stack, and nothing else."""
    models = []
    for init in ("xavier", "depth-scaled"):
        torch.manual_seed(3)
        models.append(dict(translation(init=init, norm="pre", layers=5).named_parameters()))
    plain, scaled = models
    seen = set()
    for name, parameter in scaled.items():
        depth = int(name.split(".")[2]) + 1 if ".layers." in name else 1
        projection = name.endswith("weight") and "norm" not in name and ".layers." in name
        ratio = depth**-0.5 if projection else 1.0
        torch.testing.assert_close(parameter, plain[name] * ratio, rtol=1e-6, atol=0)
        if projection:
            seen.add((name.split(".")[0], depth, ratio))
            fan = 6 / (24 + 48) if "ffn" in name else 6 / 48
            assert parameter.abs().max() <= math.sqrt(fan) * ratio * (1 + 1e-6)
            assert parameter.std().item() == pytest.approx(math.sqrt(fan / 3) * ratio, rel=0.1)
    assert len(seen) == 10


def test_shared_layers_are_all_the_first() -> None:
    models = []
    for init in ("xavier", "depth-scaled"):
        torch.manual_seed(3)
        model = translation(init=init, norm="pre", share_layers=True)
        models.append(list(model.parameters()))
    assert all(torch.equal(p, q) for p, q in zip(*models, strict=True))
