"""The whole model against an ordinary pre-norm Transformer, and how it decodes.

The reference below is written on its own: one sentence at a time without padding or batch, plain
matrices, a loop over heads, relative positions by indexing. It shares only the weights.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from kutta.model import PLACEMENTS, StackShape, TranslationModel
from kutta.model.decoding import sinusoids
from kutta.ode import METHODS, TABLEAUX
from tests.model.shapes import changed, shape_of

PAD, BOS, EOS = 0, 2, 3
VOCABULARY = 17
TINY = shape_of(12, 20, 3, layers=2, clip=2)
SOURCES = [[5, 9, 4, 12, 7, EOS], [8, EOS], [EOS], [16, 16, 6, 4, EOS]]
TARGETS = [[BOS, 4, 11], [BOS, 13, 13, 5, 6, 14, 9], [BOS, 7, 8, 5, 10], [BOS]]
COMBINATIONS = [
    (method, placement)
    for method in METHODS
    for placement in PLACEMENTS
    if not METHODS[method].looks_back or placement == "san+ffn"
]
CLOSE = {"rtol": 1e-4, "atol": 2e-5}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(9)


def make(
    shape: StackShape = TINY, shared: bool = True, decoder_method: str = "euler"
) -> TranslationModel:
    """A model in evaluation mode with every parameter random."""
    if "custom" in (shape.method, decoder_method):
        shape = changed(shape, tableau=TABLEAUX["kutta3"])
    decoder = changed(shape, cross=True, method=decoder_method)
    if decoder_method not in TABLEAUX:
        decoder = changed(decoder, gamma="tableau")
    model = TranslationModel(shape, decoder, VOCABULARY, VOCABULARY + (0 if shared else 2), shared)
    for name, parameter in model.named_parameters():
        if "norm" in name or "bias" in name or "solvers" in name:
            centre = 0.0 if "bias" in name else 1.0
            torch.nn.init.normal_(parameter, mean=centre, std=0.2)
    return model.eval()


def batch(sentences: list[list[int]], extra: int = 0) -> Tensor:
    """ids (B, longest + extra), right-padded."""
    width = max(map(len, sentences)) + extra
    return torch.tensor([s + [PAD] * (width - len(s)) for s in sentences])


# The ordinary Transformer


def reference_positions(length: int, width: int) -> Tensor:
    """sin(p w_i) for the first half of the dimensions, cos(p w_i) for the second."""
    half = width // 2
    table = torch.zeros(length, width)
    for p in range(length):
        for i in range(half):
            rate = 10000 ** (-i / (half - 1))
            table[p, i] = math.sin(p * rate)
            table[p, half + i] = math.cos(p * rate)
    return table


class Reference:
    """Pre-norm encoder-decoder Transformer over a state dict; one sentence at a time."""

    def __init__(self, model: TranslationModel) -> None:
        self.weights = {name: w.detach() for name, w in model.state_dict().items()}
        shape = model.encoder.shape
        self.layers, self.heads, self.d, self.clip = (
            shape.layers,
            shape.settings.heads,
            shape.settings.d_model,
            shape.settings.relative_positions,
        )

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name: str, x: Tensor) -> Tensor:
        scale, shift = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5) * scale + shift

    def embed(self, side: str, ids: list[int]) -> Tensor:
        table = self.weights[f"{side}_embedding.tokens.weight"]
        return table[ids] * math.sqrt(self.d) + reference_positions(len(ids), self.d)

    def heads_of(self, name: str, x: Tensor, parts: int) -> list[list[Tensor]]:
        """Projections [part][head] of a fused layer; its rows are ordered by head, then part."""
        width = self.d // self.heads
        y = self.linear(name, x)
        starts = [[(h * parts + p) * width for h in range(self.heads)] for p in range(parts)]
        return [[y[:, s : s + width] for s in row] for row in starts]

    def self_attention(self, name: str, x: Tensor, causal: bool) -> Tensor:
        q, k, v = self.heads_of(f"{name}.qkv", x, 3)
        length, outputs = len(x), []
        for h in range(self.heads):
            rows = []
            for i in range(length):
                seen = range(i + 1) if causal else range(length)
                keys = torch.stack([k[h][j] + self.relative(name, j - i) for j in seen])
                weights = functional.softmax(keys @ q[h][i] / math.sqrt(len(q[h][i])), dim=0)
                rows.append(weights @ v[h][: len(seen)])
            outputs.append(torch.stack(rows))
        return self.linear(f"{name}.out", torch.cat(outputs, dim=1))

    def relative(self, name: str, distance: int) -> Tensor | float:
        if self.clip == 0:
            return 0.0
        if distance > self.clip:
            distance = self.clip
        if distance < -self.clip:
            distance = -self.clip
        return self.weights[f"{name}.relative"][distance + self.clip]

    def cross_attention(self, name: str, x: Tensor, memory: Tensor) -> Tensor:
        (q,) = self.heads_of(f"{name}.q", x, 1)
        k, v = self.heads_of(f"{name}.kv", memory, 2)
        width = self.d // self.heads
        outputs = [
            functional.softmax(q[h] @ k[h].T / math.sqrt(width), dim=-1) @ v[h]
            for h in range(self.heads)
        ]
        return self.linear(f"{name}.out", torch.cat(outputs, dim=1))

    def feed_forward(self, name: str, x: Tensor) -> Tensor:
        return self.linear(f"{name}.down", self.linear(f"{name}.up", x).clamp(min=0))

    def encode(self, ids: list[int]) -> Tensor:
        y = self.embed("source", ids)
        for n in range(self.layers):
            at = f"encoder.layers.{n}"
            normed = self.norm(f"{at}.san.norm", y)
            y = y + self.self_attention(f"{at}.san.attention", normed, causal=False)
            y = y + self.feed_forward(f"{at}.ffn", self.norm(f"{at}.ffn.norm", y))
        return self.norm("encoder.norm", y)

    def decode(self, ids: list[int], memory: Tensor) -> Tensor:
        """Logits (T, V)."""
        y = self.embed("target", ids)
        for n in range(self.layers):
            at = f"decoder.layers.{n}"
            normed = self.norm(f"{at}.san.norm", y)
            y = y + self.self_attention(f"{at}.san.attention", normed, causal=True)
            normed = self.norm(f"{at}.cross.norm", y)
            y = y + self.cross_attention(f"{at}.cross.attention", normed, memory)
            y = y + self.feed_forward(f"{at}.ffn", self.norm(f"{at}.ffn.norm", y))
        hidden = self.norm("decoder.norm", y)
        return hidden @ self.weights["target_embedding.tokens.weight"].T


@pytest.mark.parametrize("placement", [p for p in PLACEMENTS if p != "macaron"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("clip", [0, 2, 8])
@torch.no_grad()
def test_euler_is_an_ordinary_pre_norm_transformer(placement: str, shared: bool, clip: int) -> None:
    model = make(changed(TINY, placement=placement, clip=clip), shared)
    memory = model.encode(batch(SOURCES))
    logits = model.project(model.decode(batch(TARGETS), memory))
    reference = Reference(model)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        states = reference.encode(source)
        torch.testing.assert_close(memory.states[: len(source), row], states, **CLOSE)
        expected = reference.decode(target, states)
        torch.testing.assert_close(logits[: len(target), row], expected, **CLOSE)


@torch.no_grad()
def test_the_ordinary_transformer_in_double_precision() -> None:
    """The model may be cast as a whole, as for exact comparisons or for half-precision decoding."""
    model = make().double()
    reference = Reference(model)
    logits = model.project(model(batch(SOURCES), batch(TARGETS)))
    assert logits.dtype == torch.float64
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected = reference.decode(target, reference.encode(source))
        torch.testing.assert_close(logits[: len(target), row], expected, rtol=1e-5, atol=1e-6)


def test_embeddings_are_scaled_and_positions_added() -> None:
    model = make()
    table = model.target_embedding.tokens.weight
    ids = batch(TARGETS)
    expected = table[ids].transpose(0, 1) * math.sqrt(12) + reference_positions(7, 12)[:, None]
    torch.testing.assert_close(model.target_embedding(ids), expected, rtol=1e-5, atol=1e-5)
    later = model.target_embedding(ids[:, 3:], start=3)
    torch.testing.assert_close(later, expected[3:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [2, 3, 5, 8])
def test_sinusoids_of_any_width(width: int) -> None:
    table = sinusoids(0, 6, width, torch.device("cpu"))
    assert table.shape == (6, width)
    assert torch.equal(sinusoids(4, 2, width, torch.device("cpu")), table[4:])
    assert len({tuple(row) for row in table.tolist()}) == 6


# Decoding with a cache


def cached(model: TranslationModel, source: Tensor, target: Tensor) -> Tensor:
    """Logits (T, B, V), one position after the other."""
    state = model.start(model.encode(source))
    return torch.stack([model.step(target[:, t], state) for t in range(target.shape[1])])


@pytest.mark.parametrize(("method", "placement"), COMBINATIONS)
@torch.no_grad()
def test_cached_decoding_equals_uncached(method: str, placement: str) -> None:
    gamma = "learned" if method in TABLEAUX else "tableau"
    shape = changed(TINY, method=method, placement=placement, gamma=gamma)
    model = make(shape, decoder_method=method)
    source, target = batch(SOURCES), batch(TARGETS)
    whole = model.project(model(source, target))
    torch.testing.assert_close(cached(model, source, target), whole, **CLOSE)


@pytest.mark.parametrize("method", ["euler", "rk2", "rk4", "leapfrog", "polynet"])
@torch.no_grad()
def test_reordered_rows_decode_as_if_they_had_been_there_from_the_start(method: str) -> None:
    model = make(decoder_method=method)
    rows = torch.tensor([2, 0, 0, 3, 1, 2])
    source, target = batch(SOURCES), torch.randint(4, VOCABULARY, (4, 6))
    more = torch.randint(4, VOCABULARY, (6, 3))
    state = model.start(model.encode(source))
    for t in range(3):
        model.step(target[:, t], state)
    state.select(rows)
    result = torch.stack([model.step(more[:, t], state) for t in range(3)])
    history = torch.cat([target[rows, :3], more], dim=1)
    expected = model.project(model(source[rows], history))[3:]
    torch.testing.assert_close(result, expected, **CLOSE)


@torch.no_grad()
def test_rows_may_be_chosen_before_the_first_step_and_one_may_be_left() -> None:
    model, source = make(decoder_method="rk2"), batch(SOURCES)
    state = model.start(model.encode(source))
    state.select(torch.tensor([1]))
    logits = model.step(torch.tensor([BOS]), state)
    expected = model.project(model(source[1:2], torch.tensor([[BOS]])))[0]
    torch.testing.assert_close(logits, expected, **CLOSE)


@torch.no_grad()
def test_reordering_hypotheses_of_the_same_sentence_may_leave_the_memory() -> None:
    """Beam search: rows 0, 1 read the first source, rows 2, 3 the second."""
    model = make(decoder_method="rk4")
    source = batch([SOURCES[0], SOURCES[0], SOURCES[1], SOURCES[1]])
    first, second = torch.randint(4, VOCABULARY, (2, 4))
    rows = torch.tensor([1, 1, 3, 2])
    logits = []
    for same in (True, False):
        state = model.start(model.encode(source))
        model.step(first, state)
        state.select(rows, same_sentences=same)
        logits.append(model.step(second, state))
    assert torch.equal(*logits)
    expected = model.project(model(source, torch.stack([first[rows], second], 1)))[1]
    torch.testing.assert_close(logits[0], expected, **CLOSE)


@torch.no_grad()
def test_two_states_of_one_memory_are_independent() -> None:
    model = make(decoder_method="rk2")
    memory = model.encode(batch(SOURCES))
    states, bias = memory.states.clone(), memory.bias.clone()
    one, two = model.start(memory), model.start(memory)
    first = model.step(torch.tensor([4, 5, 6, 7]), one)
    one.select(torch.tensor([3, 3, 1, 0]))
    model.step(torch.tensor([9, 9, 9, 9]), one)
    assert torch.equal(model.step(torch.tensor([4, 5, 6, 7]), two), first)
    assert torch.equal(memory.states, states)
    assert torch.equal(memory.bias, bias)


# Padding and causality

METHODS_OF_INTEREST = ["euler", "rk2", "rk4", "leapfrog", "dlcl", "polynet"]


@pytest.mark.parametrize("method", METHODS_OF_INTEREST)
@torch.no_grad()
def test_padding_columns_change_nothing(method: str) -> None:
    model = make(changed(TINY, method=method), decoder_method=method)
    target = batch(TARGETS)
    memory = model.encode(batch(SOURCES))
    hidden = model.decode(target, memory)
    for extra in (1, 5):
        wider = model.encode(batch(SOURCES, extra))
        for row, sentence in enumerate(SOURCES):
            own = slice(len(sentence))
            torch.testing.assert_close(wider.states[own, row], memory.states[own, row], **CLOSE)
        torch.testing.assert_close(model.decode(target, wider), hidden, **CLOSE)


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=8),
            st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=8),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(METHODS_OF_INTEREST),
)
@torch.no_grad()
def test_a_sentence_does_not_notice_its_batch(
    pairs: list[tuple[list[int], list[int]]], method: str
) -> None:
    model = make(changed(TINY, method=method), decoder_method=method)
    together = model(batch([s for s, _ in pairs]), batch([t for _, t in pairs]))
    for row, (source, target) in enumerate(pairs):
        alone = model(batch([source]), batch([target]))
        torch.testing.assert_close(together[: len(target), row], alone[:, 0], **CLOSE)


@pytest.mark.parametrize("method", METHODS_OF_INTEREST)
@torch.no_grad()
def test_padding_of_the_target_does_not_reach_earlier_positions(method: str) -> None:
    model = make(changed(TINY, method=method), decoder_method=method)
    memory = model.encode(batch(SOURCES))
    hidden, wider = (model.decode(batch(TARGETS, extra), memory) for extra in (0, 4))
    torch.testing.assert_close(wider[:7], hidden, **CLOSE)


@pytest.mark.parametrize(("method", "placement"), COMBINATIONS)
def test_a_position_sees_no_later_token(method: str, placement: str) -> None:
    """By gradient: what is read at position 3 depends on tokens 0 to 3 and on no other."""
    model = make(changed(TINY, placement=placement), decoder_method=method)
    memory = model.encode(batch(SOURCES))
    inputs: list[Tensor] = []

    def keep(module: torch.nn.Module, args: object, output: Tensor) -> Tensor:
        inputs.append(output.detach().requires_grad_())
        return inputs[-1]

    model.target_embedding.register_forward_hook(keep)
    hidden = model.decode(torch.randint(4, VOCABULARY, (4, 6)), memory)
    (hidden[3] ** 3).sum().backward()
    assert inputs[0].grad is not None
    reach = inputs[0].grad.abs().amax(dim=-1)
    assert (reach[:4] > 0).all()
    assert not reach[4:].any()


@torch.no_grad()
def test_changing_a_later_token_changes_nothing_before_it() -> None:
    model = make(decoder_method="rk4")
    memory = model.encode(batch(SOURCES))
    target = torch.randint(4, VOCABULARY, (4, 6))
    changed = target.clone()
    changed[:, 4] = (changed[:, 4] - 3) % 13 + 4
    before, after = model.decode(target, memory), model.decode(changed, memory)
    assert torch.equal(before[:4], after[:4])
    assert not torch.isclose(before[4:], after[4:]).all(dim=-1).any()


@torch.no_grad()
def test_the_encoder_looks_both_ways() -> None:
    model = make()
    source = torch.tensor([[5, 6, 7, 8]])
    changed = torch.tensor([[5, 6, 7, 9]])
    difference = (model.encode(source).states - model.encode(changed).states).abs().amax(-1)
    assert (difference > 1e-5).all()


# Sizes, types and modes


@pytest.mark.parametrize(("d", "heads"), [(15, 3), (9, 1), (3, 3), (2, 1)])
@pytest.mark.parametrize("method", ["euler", "rk4"])
@torch.no_grad()
def test_odd_widths_and_lengths_of_one(d: int, heads: int, method: str) -> None:
    shape = shape_of(d, 7, heads, layers=1, method=method, clip=3)
    model = make(shape, decoder_method=method)
    for B, S, T in ((1, 1, 1), (3, 1, 4), (1, 4, 1), (2, 3, 5)):
        source, target = torch.randint(4, 17, (B, S)), torch.randint(4, 17, (B, T))
        hidden = model(source, target)
        assert hidden.shape == (T, B, d)
        torch.testing.assert_close(cached(model, source, target), model.project(hidden), **CLOSE)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("gamma", ["tableau", "learned"])
def test_bf16_autocast_trains_and_decodes(method: str, gamma: str) -> None:
    if method not in TABLEAUX:
        gamma = "tableau"
    shape = changed(TINY, method=method, gamma=gamma, dropout=0.1)
    model = make(shape, decoder_method=method)
    source, target = batch(SOURCES), batch(TARGETS)
    exact = model.project(model(source, target))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model.project(model(source, target))
        torch.testing.assert_close(logits.float(), exact, rtol=0.1, atol=0.3)
        with torch.no_grad():
            torch.testing.assert_close(cached(model, source, target), logits, rtol=0.1, atol=0.3)
        loss = model.project(model.train()(source, target)).float().logsumexp(-1).mean()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all(), name


def test_training_draws_dropout_by_the_seed_and_evaluation_draws_none() -> None:
    model = make(changed(TINY, method="rk2", dropout=0.3))
    source, target = batch(SOURCES), batch(TARGETS)
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(model(source, target))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_embeddings_are_dropped_too() -> None:
    model = make(changed(TINY, dropout=0.5)).train()
    for embedding in (model.source_embedding, model.target_embedding):
        assert 0.3 < (embedding(batch(SOURCES)) == 0).double().mean() < 0.7


@pytest.mark.parametrize("shared", [True, False])
def test_every_parameter_takes_part_in_training(shared: bool) -> None:
    """Padding aside: its row gets no gradient from being looked up."""
    model = make(changed(TINY, method="rk2", gamma="learned"), shared)
    model.project(model(batch(SOURCES), batch(TARGETS))).logsumexp(-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    if not shared:
        grad = model.source_embedding.tokens.weight.grad
        assert grad is not None
        assert not grad[PAD].any()
        assert grad[5].any()


def test_separate_vocabularies_have_their_own_sizes() -> None:
    model = make(shared=False)
    hidden = model(torch.tensor([[VOCABULARY - 1]]), torch.tensor([[VOCABULARY + 1]]))
    assert model.project(hidden).shape == (1, 1, VOCABULARY + 2)
    with pytest.raises(IndexError):
        model.encode(torch.tensor([[VOCABULARY + 1]]))
