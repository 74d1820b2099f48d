"""Attention against a version with plain loops over sentences, heads, queries and keys."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kutta.model.attention import (
    CrossAttention,
    KeyValues,
    SelfAttention,
    attend,
    by_fused_kernel,
    by_products,
    relative_offsets,
)
from kutta.model.dropout import Dropout

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def self_attention(d: int = 12, heads: int = 3, clip: int = 2) -> SelfAttention:
    """A module whose every parameter is random, in double precision."""
    module = SelfAttention(d, heads, clip, dropout=0.0).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def naive_self_attention(module: SelfAttention, x: Tensor, allowed: list[list[bool]]) -> Tensor:
    """One sentence x (T, d); allowed[i][j] says whether query i may look at key j."""
    T, d = x.shape
    width = d // module.heads
    heads = []
    for h in range(module.heads):
        rows = [slice((3 * h + part) * width, (3 * h + part + 1) * width) for part in range(3)]
        q, k, v = (x @ module.qkv.weight[r].T + module.qkv.bias[r] for r in rows)
        outputs = []
        for i in range(T):
            keys = [j for j in range(T) if allowed[i][j]]
            logits = []
            for j in keys:
                key = k[j]
                if module.relative is not None:
                    distance = max(-module.clip, min(module.clip, j - i))
                    key = key + module.relative[distance + module.clip]
                logits.append(torch.dot(q[i], key) / math.sqrt(width))
            weights = torch.stack(logits).softmax(0)
            outputs.append(sum(w * v[j] for w, j in zip(weights, keys, strict=True)))
        heads.append(torch.stack(outputs))
    return torch.cat(heads, dim=1) @ module.out.weight.T + module.out.bias


def offsets(queries: int, keys: int, clip: int) -> Tensor | None:
    return relative_offsets(queries, keys, clip, CPU) if clip else None


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 7),
    st.integers(1, 3),
    st.sampled_from([1, 2, 3]),
    st.integers(0, 4),
    st.booleans(),
)
def test_self_attention_equals_plain_loops(
    T: int, B: int, heads: int, clip: int, causal: bool
) -> None:
    """Lengths of one, one sentence, one head and odd widths included."""
    module, x = self_attention(5 * heads, heads, clip), torch.randn(T, B, 5 * heads).double()
    future = torch.full((T, T), -math.inf).double().triu(1)
    bias = future[:, None].expand(T, B * heads, T) if causal else None
    result = module(x, bias, offsets(T, T, clip))
    allowed = [[j <= i or not causal for j in range(T)] for i in range(T)]
    expected = torch.stack([naive_self_attention(module, x[:, b], allowed) for b in range(B)], 1)
    torch.testing.assert_close(result, expected)


def test_relative_offsets_count_clipped_distances() -> None:
    table = relative_offsets(6, 6, 2, CPU)
    for i in range(6):
        for j in range(6):
            assert table[i, j] == min(2, max(-2, j - i)) + 2


def test_relative_offsets_of_the_newest_query_are_the_last_row() -> None:
    assert torch.equal(relative_offsets(1, 9, 3, CPU), relative_offsets(9, 9, 3, CPU)[-1:])


@pytest.mark.parametrize("clip", [1, 2, 8])
def test_beyond_the_clip_distance_all_positions_act_the_same(clip: int) -> None:
    """For the query in the middle, far keys may be exchanged; near ones may not."""
    T = 2 * (clip + 2) + 1
    middle, module = T // 2, self_attention(clip=clip)
    x = torch.randn(T, 2, 12).double()

    def exchanged(a: int, b: int) -> Tensor:
        order = list(range(T))
        order[a], order[b] = order[b], order[a]
        return module(x[order], None, offsets(T, T, clip))[middle]

    before = module(x, None, offsets(T, T, clip))[middle]
    far_left, edge_left = 0, middle - clip
    torch.testing.assert_close(exchanged(far_left, far_left + 1), before)
    torch.testing.assert_close(exchanged(far_left, edge_left), before)
    torch.testing.assert_close(exchanged(T - 1, middle + clip), before)
    assert (exchanged(far_left, T - 1) - before).abs().max() > 1e-3  # left is not right
    inside = middle - clip + 1 if clip > 1 else middle
    assert (exchanged(far_left, inside) - before).abs().max() > 1e-3


def test_without_relative_positions_order_does_not_matter() -> None:
    module, x = self_attention(clip=0), torch.randn(6, 2, 12).double()
    assert module.relative is None
    order = [4, 0, 5, 2, 1, 3]
    torch.testing.assert_close(module(x[order], None, None), module(x, None, None)[order])


def test_positions_are_on_the_key_side_only() -> None:
    """Where all keys weigh the same, the table cannot be seen in the values."""
    module, x = self_attention(), torch.randn(5, 2, 12).double()
    q_rows = torch.arange(36).view(3, 3, 4)[:, 0].flatten()
    module.qkv.weight.data[q_rows] = 0
    module.qkv.bias.data[q_rows] = 0
    v_rows = q_rows + 8
    values = x @ module.qkv.weight[v_rows].T + module.qkv.bias[v_rows]
    expected = module.out(values.mean(0, keepdim=True).expand(5, 2, 12))
    torch.testing.assert_close(module(x, None, offsets(5, 5, 2)), expected)


def test_one_table_serves_all_heads() -> None:
    module = SelfAttention(12, 3, 8, 0.0)
    assert module.relative is not None
    assert module.relative.shape == (17, 4)


def test_masked_keys_have_no_influence() -> None:
    module, x = self_attention(), torch.randn(5, 2, 12).double()
    bias = torch.zeros(1, 2, 5).double()
    bias[0, 1, 3:] = -math.inf  # the second sentence has three tokens
    spread = bias.repeat_interleave(3, dim=1).expand(5, -1, -1)
    before = module(x, spread, offsets(5, 5, 2))
    x[3:, 1] = 1e3
    after = module(x, spread, offsets(5, 5, 2))
    torch.testing.assert_close(after[:3, 1], before[:3, 1])
    torch.testing.assert_close(after[:, 0], before[:, 0])
    alone = module(x[:3, 1:], None, offsets(3, 3, 2))
    torch.testing.assert_close(after[:3, 1:], alone)


def test_a_cache_gives_what_the_whole_sentence_gives() -> None:
    T, module = 7, self_attention()
    x = torch.randn(T, 3, 12).double()
    bias = torch.full((T, T), -math.inf).double().triu(1)[:, None].expand(T, 9, T)
    whole = module(x, bias, offsets(T, T, 2))
    cache = module.empty_cache(3)
    steps = [module(x[t : t + 1], None, offsets(1, t + 1, 2), cache) for t in range(T)]
    torch.testing.assert_close(torch.cat(steps), whole)
    assert cache.keys.shape == cache.values.shape == (T, 3, 3, 4)


def test_a_cache_may_be_reordered_and_repeat_rows() -> None:
    cache = KeyValues(torch.randn(4, 3, 2, 5), torch.randn(4, 3, 2, 5))
    keys, values = cache.keys, cache.values
    cache.select(torch.tensor([2, 0, 0, 1]))
    for new, old in enumerate([2, 0, 0, 1]):
        assert torch.equal(cache.keys[:, new], keys[:, old])
        assert torch.equal(cache.values[:, new], values[:, old])
    assert cache.keys.shape == (4, 4, 2, 5)


def test_an_empty_cache_may_be_reordered() -> None:
    cache = self_attention().empty_cache(2)
    cache.select(torch.tensor([1, 1, 0]))
    assert cache.keys.shape == (0, 3, 3, 4)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.sampled_from([1, 2]))
def test_cross_attention_equals_plain_loops(T: int, S: int, B: int, heads: int) -> None:
    width = 3
    d = heads * width
    module = CrossAttention(d, heads, dropout=0.0).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x, memory = torch.randn(T, B, d).double(), torch.randn(S, B, d).double()
    lengths = [1 + b % S for b in range(B)]
    bias = torch.zeros(1, B, S).double()
    for b, length in enumerate(lengths):
        bias[0, b, length:] = -math.inf
    spread = bias.repeat_interleave(heads, dim=1).expand(T, -1, -1)
    result = module(x, module.keys_values(memory), spread)
    for b, length in enumerate(lengths):
        q = module.q(x[:, b])
        outputs = []
        for h in range(heads):
            own = slice(h * width, (h + 1) * width)
            key_rows = slice(2 * h * width, (2 * h + 1) * width)
            value_rows = slice((2 * h + 1) * width, (2 * h + 2) * width)
            kept = memory[:length, b]
            k = kept @ module.kv.weight[key_rows].T + module.kv.bias[key_rows]
            v = kept @ module.kv.weight[value_rows].T + module.kv.bias[value_rows]
            outputs.append(torch.softmax(q[:, own] @ k.T / math.sqrt(width), -1) @ v)
        expected = module.out(torch.cat(outputs, dim=1))
        torch.testing.assert_close(result[:, b], expected)


def test_attention_dropout_falls_on_the_weights() -> None:
    """Each output is then a sum of surviving values, scaled by 1 / (1 - p)."""
    q, memory = (
        torch.zeros(1, 1, 1, 4),
        KeyValues(torch.zeros(4, 1, 1, 4), torch.eye(4)[:, None, None]),
    )
    draws = [attend(q, memory, None, None, Dropout(0.5)).flatten().tolist() for _ in range(40)]
    seen = {tuple(draw) for draw in draws}
    assert all(x in (0.0, 0.5) for row in seen for x in row)  # 1/4 each, or dropped
    assert len(seen) > 5


# The fused kernel of GPUs, which torch has for CPUs too


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(0, 5),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["none", "padding", "causal", "both"]),
    st.booleans(),
)
def test_the_fused_kernel_computes_the_same_and_its_gradients(
    T: int, earlier: int, B: int, H: int, masks: str, relative: bool
) -> None:
    """The queries are the last T of S positions, as in training (all) and in decoding (one)."""
    S, width = T + earlier, 5
    bias = torch.zeros(T, B * H, S).double()
    if masks in ("padding", "both"):
        for row in range(B * H):
            bias[:, row, S - (row // H) % S :] = -math.inf  # the first sentence has no padding
    if masks in ("causal", "both"):
        bias[:, :, 1:] += torch.full((T, S), -math.inf).double().triu(earlier + 1)[:, None, 1:]
    shapes = [(T, B, H, width), (S, B, H, width), (S, B, H, width), (T, S, width)]
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    weights = torch.randn(T, B, H * width).double()

    def computed(device_type: str) -> list[Tensor]:
        q, keys, values, r = given
        by = {"cpu": by_products, "cuda": by_fused_kernel}[device_type]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kutta.model.attention.by_products", by)
            mask, positions = None if masks == "none" else bias, r if relative else None
            out = attend(q, KeyValues(keys, values), mask, positions, Dropout(0.3).eval())
        return [out, *torch.autograd.grad(out, given[: 4 if relative else 3], weights)]

    for ours, fused in zip(computed("cpu"), computed("cuda"), strict=True):
        torch.testing.assert_close(fused, ours, rtol=1e-10, atol=1e-10)


def test_a_bias_for_all_sentences_and_one_for_all_queries_fit_the_fused_kernel() -> None:
    q, keys, values = (torch.randn(4, 2, 3, 5).double() for _ in range(3))
    for shape in ((4, 1, 4), (1, 6, 4), (1, 1, 4)):
        given = (q, KeyValues(keys, values), torch.randn(shape).double(), Dropout(0.0))
        torch.testing.assert_close(by_fused_kernel(*given), by_products(*given))


def test_the_fused_kernel_drops_weights_in_training_only() -> None:
    """Values of one, and weights that are all alike: the mean stays, and the variance is known."""
    T, S, B, H, p = 400, 50, 2, 2, 0.2
    q, keys, values = torch.zeros(T, B, H, 2), torch.zeros(S, B, H, 2), torch.ones(S, B, H, 2)
    given = q, KeyValues(keys, values), None
    torch.testing.assert_close(by_fused_kernel(*given, Dropout(p).eval()), torch.ones_like(q))
    drawn = by_fused_kernel(*given, Dropout(p).train())[..., 0]
    torch.testing.assert_close(drawn.mean(), torch.tensor(1.0), rtol=0.02, atol=0.0)
    torch.testing.assert_close(drawn.var(), torch.tensor(p / (1 - p) / S), rtol=0.2, atol=0.0)


@pytest.mark.parametrize(("device", "fused"), [("cpu", False), ("meta", True)])
def test_every_device_but_a_cpu_takes_the_fused_kernel(
    monkeypatch: pytest.MonkeyPatch, device: str, fused: bool
) -> None:
    calls = list[str]()
    for name, function in (("by_products", by_products), ("by_fused_kernel", by_fused_kernel)):
        monkeypatch.setattr(
            f"kutta.model.attention.{name}",
            lambda *given, name=name, function=function: calls.append(name) or function(*given),
        )
    with torch.device(device):
        own, cross = SelfAttention(12, 3, 2, 0.1), CrossAttention(12, 3, 0.1)
        x = torch.randn(4, 2, 12)
        own(x, None, relative_offsets(4, 4, 2, x.device))
        assert cross(x, cross.keys_values(x), None).shape == x.shape
    assert calls == ["by_fused_kernel" if fused else "by_products"] * 2
