"""What a model costs, counted by hand."""

from typing import Any

import pytest
import torch

from kutta.model import LanguageModel, TextModel, TranslationModel
from kutta.model.arithmetic import Cost, cost_of
from tests.model.shapes import changed, shape_of

D, FFN, V = 12, 20, 17
SHAPE = shape_of(D, FFN, 3, layers=3, clip=0)
SAN, CROSS, FEED = 4 * D * D, 2 * D * D, 2 * D * FFN  # matrix products of one evaluation
MEMORY = 2 * D * D  # keys and values of the source, once per layer


def translation(**settings: Any) -> TextModel:
    encoder = changed(SHAPE, **settings)
    decoder = changed(SHAPE, layers=2, cross=True, **{**settings, "method": "euler"})
    if settings.get("gamma"):
        decoder = changed(decoder, gamma="tableau")
    return TranslationModel(encoder, decoder, V, V, shared=True)


def total(model: TextModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("settings", "per_layer"),
    [
        ({}, SAN + FEED),
        ({"method": "rk2"}, 2 * (SAN + FEED)),
        ({"method": "rk4", "placement": "ffn"}, SAN + 4 * FEED),
        ({"method": "pc2"}, 3 * (SAN + FEED)),
        ({"placement": "macaron"}, SAN + 2 * FEED),
        ({"placement": "macaron", "method": "rk2"}, 2 * (SAN + 2 * FEED)),
        ({"share_layers": True}, SAN + FEED),
        ({"method": "rk2", "gamma": "gated"}, 2 * (SAN + FEED) + 2 * D),
        ({"method": "rk2", "replicate": "release"}, 2 * (SAN + FEED)),
        ({"norm": "post", "init": "admin"}, SAN + FEED),
        ({"layer_drop": 0.5}, SAN + FEED),
    ],
    ids=str,
)
def test_multiply_adds_by_hand(settings: dict[str, Any], per_layer: int) -> None:
    cost = cost_of(translation(**settings))
    assert cost.per_source_token == 3 * per_layer + 2 * MEMORY
    feed = 2 * FEED if settings.get("placement") == "macaron" else FEED
    assert cost.per_target_token == 2 * (SAN + CROSS + feed) + V * D


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"share_layers": True},
        {"method": "rk2", "gamma": "learned", "share_gamma": True},
        {"method": "rk4", "gamma": "ema"},
        {"placement": "macaron"},
        {"replicate": "release", "method": "rk2"},
        {"norm": "post", "init": "admin"},
    ],
    ids=str,
)
def test_the_parts_add_up_to_all_parameters(settings: dict[str, Any]) -> None:
    model = translation(**settings)
    assert cost_of(model).parameters == total(model)
    assert cost_of(model).embeddings == V * D


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        ({"method": "rk2", "gamma": "learned"}, 3 * 2),
        ({"method": "rk2", "gamma": "learned", "share_gamma": True}, 2),
        ({"method": "rk2", "gamma": "learned", "share_layers": True}, 3 * 2),
        ({"method": "rk4", "gamma": "ema"}, 3),
        ({"norm": "post", "init": "admin"}, 3 * 2 * D + 2 * 3 * D),
    ],
    ids=str,
)
def test_what_solvers_learn(settings: dict[str, Any], numbers: int) -> None:
    assert cost_of(translation(**settings)).solver == numbers


@pytest.mark.parametrize(
    ("placement", "crosses", "attention", "feed"),
    [("san+ffn", 4, 4, 4), ("san", 4, 4, 1), ("ffn", 1, 1, 4)],
)
def test_separate_stages_cost_parameters_and_projections_of_the_memory(
    placement: str, crosses: int, attention: int, feed: int
) -> None:
    """Each evaluation of cross-attention has its own keys and values of the source."""
    shape = changed(SHAPE, method="rk4", placement=placement, stage_parameters="separate")
    models = [
        TranslationModel(encoder, changed(encoder, layers=2, cross=True), V, V, shared=True)
        for encoder in (shape, changed(shape, stage_parameters="shared"))
    ]
    separate, shared = map(cost_of, models)
    encoder = 3 * (attention * SAN + feed * FEED)
    assert separate.per_source_token == encoder + 2 * crosses * MEMORY
    assert shared.per_source_token == encoder + 2 * MEMORY
    assert separate.per_target_token == shared.per_target_token
    assert separate.per_target_token == 2 * (attention * (SAN + CROSS) + feed * FEED) + V * D
    assert separate.parameters == total(models[0]) > shared.parameters == total(models[1])
    biases_and_norms = (attention - 1) * (2 * D + 4 * D) + (feed - 1) * (2 * D + FFN + D)
    later = (attention - 1) * SAN + (feed - 1) * FEED + biases_and_norms
    assert separate.encoder - shared.encoder == 3 * later


def test_shared_layers_are_counted_once_and_computed_every_time() -> None:
    apart, shared = cost_of(translation()), cost_of(translation(share_layers=True))
    norm = 2 * D
    assert (apart.encoder - norm) == 3 * (shared.encoder - norm)
    assert (apart.decoder - norm) == 2 * (shared.decoder - norm)
    assert apart.per_source_token == shared.per_source_token
    assert apart.per_target_token == shared.per_target_token


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_embeddings_and_an_output_layer_of_its_own_are_counted(shared: bool, tied: bool) -> None:
    source = V if shared else 30
    model = TranslationModel(SHAPE, changed(SHAPE, cross=True), source, V, shared, tied)
    cost = cost_of(model)
    assert cost.embeddings == (V + (0 if shared else 30) + (0 if tied else V)) * D
    assert cost.parameters == total(model)
    assert cost.per_target_token == 3 * (SAN + CROSS + FEED) + V * D, "tied or not"


LAYER = 4 * (D * D + D) + (2 * D * FFN + FFN + D) + 4 * D  # attention, feed-forward, two norms


@pytest.mark.parametrize(("tied", "matrices"), [(False, 2), (True, 1)])
def test_a_language_model_has_no_encoder(tied: bool, matrices: int) -> None:
    model = LanguageModel(changed(SHAPE, method="rk2", gamma="learned"), V, tied)
    expected = Cost(
        embeddings=matrices * V * D,
        encoder=0,
        decoder=3 * (LAYER + 2) + 2 * D,
        solver=3 * 2,
        per_source_token=0,
        per_target_token=3 * 2 * (SAN + FEED) + V * D,
    )
    assert cost_of(model) == expected
    assert cost_of(model).parameters == total(model)


def test_counting_needs_no_memory() -> None:
    with torch.device("meta"):
        model = translation(replicate="release", method="rk4")
    assert cost_of(model).parameters == total(model)
