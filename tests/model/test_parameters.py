"""The sizes of the paper's models and where their parameters start."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from kutta.config import ModelConfig
from kutta.model import TranslationModel
from kutta.model.attention import CrossAttention, SelfAttention
from kutta.model.transformer import build_model
from kutta.ode import METHODS, TABLEAUX

BASE = {"d_model": 512, "ffn": 2048, "heads": 8}
BIG = {"d_model": 1024, "ffn": 4096, "heads": 16}
SMALL = {"d_model": 256, "ffn": 1024, "heads": 4}
TINY = {"d_model": 8, "ffn": 16, "heads": 2, "encoder_layers": 3, "decoder_layers": 3}


def build(vocabulary: int = 50, shared: bool = True, **model: object) -> TranslationModel:
    """A model of these settings."""
    return build_model(ModelConfig.model_validate(model), vocabulary, vocabulary, shared)


def shapes_only(vocabulary: int, **model: object) -> TranslationModel:
    """The same without memory behind the parameters."""
    with torch.device("meta"):
        return build(vocabulary, **model)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# The rows of the paper. Its vocabulary is "32K merges, shared", and merges come on top of the
# characters: with 33,326 to 33,732 tokens all rows come out as printed, with 32,768 the big model
# has 209.9M and not 211M.
@pytest.mark.parametrize(
    ("vocabulary", "sizes", "encoder", "millions"),
    [
        (33_500, BASE, 6, 61),
        (33_500, BASE, 24, 118),
        (33_500, BIG, 6, 211),
        (33_500, BIG, 12, 286),
        (32_768, BASE, 6, 61),
        (32_768, BASE, 24, 118),
        (32_768, BIG, 6, 210),
        (32_768, BIG, 12, 286),
        # The paper does not print the depths of its small models; at these its sizes come out.
        (32_768, SMALL, 6, 19),
        (32_768, SMALL, 18, 29),
        (32_768, SMALL, 23, 33),
        (32_768, SMALL, 28, 37),
        (32_768, SMALL, 34, 42),
        (32_768, SMALL, 60, 62),
    ],
)
def test_sizes_of_the_paper_to_the_nearest_million(
    vocabulary: int, sizes: dict[str, int], encoder: int, millions: int
) -> None:
    model = shapes_only(vocabulary, encoder_layers=encoder, decoder_layers=6, **sizes)
    assert round(count(model) / 1e6) == millions


def test_base_counted_by_hand() -> None:
    d, ffn, width, V = 512, 2048, 64, 32_768
    norm, square = 2 * d, d * d + d
    san = norm + 4 * square + 17 * width
    cross = norm + 4 * square
    feed = norm + (d * ffn + ffn) + (ffn * d + d)
    expected = V * d + 6 * (san + feed) + norm + 6 * (san + cross + feed) + norm
    assert count(shapes_only(V, **BASE)) == expected


@pytest.mark.parametrize("method", METHODS)
def test_a_method_adds_no_parameter_but_its_own_coefficients(method: str) -> None:
    """Three blocks: multistep has k in all but the first, DLCL a row of t + 1 weights in each.

    A predictor-corrector block has a and its corrector's weights: two, three, then four.
    """
    corrected = 3 * 1 + 2 + 3 + 4
    own = {"multistep": 2, "dlcl": 1 + 2 + 3, "pc2": corrected, "pc4": corrected}.get(method, 0)
    extra = {"tableau": {"a": [["1/2"]], "b": [0, 1]}} if method == "custom" else {}
    plain = count(build(solver="euler", **TINY))
    assert count(build(solver=method, **extra, **TINY)) == plain + own
    assert count(build(solver="euler", decoder_solver=method, **extra, **TINY)) == plain + own


@pytest.mark.parametrize("method", TABLEAUX)
@pytest.mark.parametrize(("field", "blocks"), [("san+ffn", 3), ("san/ffn", 6), ("san", 3)])
def test_learned_gamma_adds_one_scalar_a_stage_and_block(
    method: str, field: str, blocks: int
) -> None:
    plain = count(build(solver=method, field=field, **TINY))
    assert count(build(solver=method, gamma="ones", field=field, **TINY)) == plain
    learned = count(build(solver=method, gamma="learned", field=field, **TINY))
    assert learned == plain + blocks * TABLEAUX[method].stages


def test_shared_and_separate_embeddings() -> None:
    shared, separate = build(100, **TINY), build(100, shared=False, **TINY)
    assert count(separate) - count(shared) == 100 * 8
    assert shared.source_embedding is shared.target_embedding
    for model in (shared, separate):
        assert model.output_weight is model.target_embedding.tokens.weight
    source, target = separate.source_embedding.tokens, separate.target_embedding.tokens
    assert source.weight is not target.weight


def test_without_relative_positions_only_the_tables_are_missing() -> None:
    with_tables, without = build(**TINY), build(relative_positions=0, **TINY)
    assert count(with_tables) - count(without) == 6 * 17 * 4


# Where parameters start


@pytest.fixture(scope="module")
def fresh() -> TranslationModel:
    torch.manual_seed(2)
    config = ModelConfig(d_model=192, ffn=448, heads=4, encoder_layers=2, decoder_layers=2)
    return build_model(config, 900, 1100, shared=False)


def linears(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every projection as a matrix of its own: fused ones are taken apart, head by head."""
    for name, module in model.named_modules():
        if isinstance(module, SelfAttention | CrossAttention):
            d = module.out.in_features
            yield f"{name}.out", module.out.weight
            fused = module.qkv if isinstance(module, SelfAttention) else module.kv
            parts = fused.weight.view(module.heads, -1, d // module.heads, d).unbind(1)
            for number, part in enumerate(parts):
                yield f"{name}.{number}", part.reshape(d, d)
            if isinstance(module, CrossAttention):
                yield f"{name}.q", module.q.weight
        elif name.endswith((".up", ".down")):
            assert isinstance(module, nn.Linear)
            yield name, module.weight


def test_every_projection_is_xavier_uniform(fresh: TranslationModel) -> None:
    found = list(linears(fresh))
    assert len(found) == 2 * (4 + 2) + 2 * (4 + 4 + 2)
    assert sum(matrix.numel() for _, matrix in found) == sum(
        m.weight.numel() for m in fresh.modules() if isinstance(m, nn.Linear)
    )
    for name, matrix in found:
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.995 * bound < matrix.abs().max() <= bound, name
        assert matrix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02), name
        assert abs(matrix.mean().item()) < 4 * bound / math.sqrt(3 * matrix.numel()), name


def test_all_biases_start_at_zero_and_norms_at_the_identity(fresh: TranslationModel) -> None:
    for module in fresh.modules():
        if isinstance(module, nn.Linear | nn.LayerNorm):
            assert not module.bias.any()
        if isinstance(module, nn.LayerNorm):
            assert torch.equal(module.weight, torch.ones_like(module.weight))
            assert module.eps == 1e-5


def test_embeddings_start_normal_with_deviation_d_to_the_minus_half(
    fresh: TranslationModel,
) -> None:
    for embedding, size in ((fresh.source_embedding, 900), (fresh.target_embedding, 1100)):
        weight = embedding.tokens.weight
        assert weight.shape == (size, 192)
        assert not weight[0].any()  # padding
        assert weight[1:].std().item() == pytest.approx(192**-0.5, rel=0.02)
        standard = weight[1:].flatten() * 192**0.5
        assert abs(standard.mean()) < 0.02
        for sigmas, share in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):  # normal, not uniform
            assert (standard.abs() < sigmas).double().mean().item() == pytest.approx(
                share, abs=0.01
            )


def test_relative_tables_are_xavier_uniform(fresh: TranslationModel) -> None:
    tables = [m.relative for m in fresh.modules() if isinstance(m, SelfAttention)]
    assert len(tables) == 4
    for table in tables:
        assert table is not None
        assert table.shape == (17, 48)
        bound = math.sqrt(6 / (17 + 48))
        assert 0.97 * bound < table.abs().max() <= bound
        assert table.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_the_seed_decides_the_start() -> None:
    config = ModelConfig(d_model=8, ffn=8, heads=2, encoder_layers=1, decoder_layers=1)
    models = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append(build_model(config, 20, 20, shared=True).state_dict())
    first, again, other = models
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(
        first["encoder.layers.0.ffn.up.weight"], other["encoder.layers.0.ffn.up.weight"]
    )


def test_settings_reach_the_model() -> None:
    model = build(
        solver="rk4",
        gamma="learned",
        field="san/ffn",
        decoder_solver="midpoint",
        relative_positions=3,
        dropout=0.2,
        attention_dropout=0.3,
        relu_dropout=0.4,
        **TINY,
    )
    for stack, method, cross in ((model.encoder, "rk4", False), (model.decoder, "midpoint", True)):
        shape, has = stack.shape, stack.shape.settings
        assert (has.d_model, has.ffn, has.heads, has.relative_positions) == (8, 16, 2, 3)
        assert (has.dropout, has.attention_dropout, has.relu_dropout) == (0.2, 0.3, 0.4)
        assert (shape.method, has.field, shape.cross) == (method, "san/ffn", cross)
    assert model.encoder.shape.gamma == "learned"
