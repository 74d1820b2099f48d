"""The language model: a decoder that knows nothing but its own text."""

import pytest
import torch
from torch import Tensor

from kutta.config import ModelConfig
from kutta.model import LanguageModel, TranslationModel
from kutta.model.transformer import build_model
from kutta.ode import METHODS, TABLEAUX
from tests.model.shapes import changed, shape_of

VOCABULARY = 19
TINY = shape_of(12, 20, 3, layers=3, clip=2)
TEXT = torch.tensor([[2, 5, 9, 4, 12], [2, 8, 8, 17, 6]])
NO_SOURCE = torch.empty(2, 0, dtype=torch.long)


def make(method: str, gamma: str = "tableau", tied: bool = False) -> LanguageModel:
    torch.manual_seed(4)
    own = TABLEAUX["kutta3"] if method == "custom" else None
    shape = changed(TINY, method=method, gamma=gamma, tableau=own)
    return LanguageModel(shape, VOCABULARY, tied).eval()


def logits(model: LanguageModel, text: Tensor) -> Tensor:
    """(B, T) -> (B, T, V)."""
    return model.project(model(NO_SOURCE, text)).transpose(0, 1)


@pytest.mark.parametrize("method", METHODS)
def test_a_word_depends_on_earlier_words_only(method: str) -> None:
    model = make(method)
    changed = TEXT.clone()
    changed[:, 3] = 7
    before, after = logits(model, TEXT), logits(model, changed)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:], atol=1e-3)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_writing_token_by_token_equals_reading_the_whole_text(method: str, tied: bool) -> None:
    model = make(method, tied=tied)
    state = model.start(rows=2)
    steps = [model.step(column, state) for column in TEXT.unbind(1)]
    torch.testing.assert_close(torch.stack(steps, 1), logits(model, TEXT), rtol=1e-4, atol=2e-5)


def test_rows_of_a_state_can_be_chosen() -> None:
    model = make("rk4", "learned")
    state = model.start(rows=2)
    for column in TEXT[:, :3].unbind(1):
        model.step(column, state)
    state.select(torch.tensor([1, 1, 0]))
    following = model.step(torch.tensor([3, 4, 5]), state)
    again = torch.cat([TEXT[[1, 1, 0], :3], torch.tensor([[3], [4], [5]])], dim=1)
    expected = model.project(model(NO_SOURCE, again))[-1]
    torch.testing.assert_close(following, expected, rtol=1e-4, atol=2e-5)


def test_no_encoder_in_the_settings_makes_a_language_model() -> None:
    settings = ModelConfig(d_model=16, ffn=32, heads=2, encoder_layers=0, decoder_layers=2)
    model = build_model(settings, VOCABULARY, VOCABULARY, shared=True)
    assert isinstance(model, LanguageModel)
    assert model.decoder.shape.method == settings.solver
    assert not any("cross" in name for name, _ in model.named_parameters())
    both = settings.model_copy(update={"encoder_layers": 1})
    assert isinstance(build_model(both, VOCABULARY, VOCABULARY, shared=True), TranslationModel)


SIZES = {"d_model": 16, "ffn": 32, "heads": 2, "decoder_layers": 2}


@pytest.mark.parametrize(
    ("settings", "tied"),
    [
        ({"encoder_layers": 0}, False),
        ({"encoder_layers": 0, "tie_embeddings": True}, True),
        ({"encoder_layers": 1}, True),
        ({"encoder_layers": 1, "tie_embeddings": False}, False),
    ],
    ids=str,
)
def test_the_output_layer_is_the_embedding_or_a_matrix_of_its_own(
    settings: dict[str, int], tied: bool
) -> None:
    model = build_model(ModelConfig.model_validate(SIZES | settings), 11, VOCABULARY, shared=False)
    embedding = model.target_embedding.tokens.weight
    assert (model.output_weight is embedding) == tied
    assert model.output_weight.shape == embedding.shape == (VOCABULARY, 16)
    assert ("output.weight" in dict(model.named_parameters())) == (not tied)
    states = torch.randn(2, 16)
    with torch.no_grad():
        before = model.project(states)
        embedding.zero_()
        after = model.project(states)
    assert torch.equal(before, states @ model.output_weight.T) or tied
    assert torch.equal(before, after) == (not tied)


@pytest.mark.parametrize(("tied", "matrices"), [(False, 2), (True, 1)])
def test_the_parameters_are_those_of_the_formula(tied: bool, matrices: int) -> None:
    """Embedding V d, untied the output V d; a layer 4 d^2 + 4 d + 2 d f + f + d, two norms 4 d,
    positions; a norm 2 d."""
    d, f, layers, clip, heads = 12, 20, 3, 2, 3
    layer = 4 * d * d + 4 * d + 2 * d * f + f + d + 4 * d + (2 * clip + 1) * d // heads
    expected = matrices * VOCABULARY * d + layers * layer + 2 * d
    assert sum(p.numel() for p in make("rk4", tied=tied).parameters()) == expected
    learned = sum(p.numel() for p in make("rk4", "learned", tied).parameters())
    assert learned == expected + layers * 4
