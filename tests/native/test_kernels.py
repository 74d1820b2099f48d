"""The kernels in C against numpy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kutta.data.tokenizer import EOS
from kutta.runtime.kernels import Weights, obstacle
from tests.native.kernel_calls import Do, Numbers, computed, run

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle())


def normal(*shape: int, seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def in_8_bits(matrix: Numbers) -> tuple[NDArray[np.int8], Numbers]:
    scales = np.abs(matrix).max(1) / np.float32(127)
    return np.rint(matrix / scales[:, None]).astype(np.int8), scales


def softmax(x: Numbers) -> Numbers:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# Whole panels of outputs and parts of one, whole vectors of inputs and parts of one.
SIZES = st.tuples(st.integers(1, 20), st.integers(1, 150), st.integers(1, 150))


@settings(deadline=None, max_examples=60)
@given(SIZES, st.booleans())
def test_products_in_full(sizes: tuple[int, int, int], with_bias: bool) -> None:
    rows, inputs, outputs = sizes
    x, w, bias = normal(rows, inputs), normal(outputs, inputs, seed=1), normal(outputs, seed=2)
    more = {"vector": bias} if with_bias else {}
    product = Do("product", [0], 1, matrix=Weights.in_full(w), **more)
    found = computed(x, [product], [inputs, outputs])
    assert np.allclose(found, x @ w.T + bias * with_bias, atol=1e-4)


@settings(deadline=None, max_examples=90)
@given(SIZES, st.sampled_from(["by rows", "behind norm", "behind relu"]))
def test_products_in_8_bits(sizes: tuple[int, int, int], how: str) -> None:
    rows, inputs, outputs = sizes
    x, w, bias = normal(rows, inputs), normal(outputs, inputs, seed=1), normal(outputs, seed=2)
    x[0] = 0.0
    codes, scales = in_8_bits(w)
    matrix, unit = Weights.in_8_bits(codes, scales), np.float32(0.021)  # some numbers are cut off
    product = Do("product", [0], 1, matrix=matrix, vector=bias, how=how, number=unit)
    found = computed(x, [product], [inputs, outputs])
    least, most = (0, 255) if how == "behind relu" else (-128, 127)
    if how != "behind norm":
        largest = np.maximum(x if how == "behind relu" else np.abs(x), 0).max(1, keepdims=True)
        unit = np.maximum(largest / np.float32(most), np.float32(1e-30))
    of_x = np.clip(np.rint(x / unit), least, most)
    expected = (of_x @ codes.T.astype(np.float32)) * unit * scales + bias
    # A number half-way between two codes may get either.
    assert np.abs(found - expected).max() <= np.max(unit) * np.abs(w).max() * 1.01
    assert np.median(np.abs(found - expected)) < 1e-4
    assert np.allclose(found[0], bias, atol=1e-6), "a row of zeros gives the bias"


@pytest.mark.parametrize("full", [True, False])
def test_chosen_rows_are_those_of_the_matrix(full: bool) -> None:
    w, ids = normal(200, 70), np.array([199, 0, 64, 64, 3, 127] * 12)
    matrix = Weights.in_full(w) if full else Weights.in_8_bits(*in_8_bits(w))
    x = normal(5, 70, seed=1)
    every, some = (
        computed(x, [Do("product", [0], 1, matrix=one)], [70, count])
        for one, count in ((matrix, 200), (matrix.chosen(ids), len(ids)))
    )
    assert np.array_equal(some, every[:, ids])


@pytest.mark.parametrize("width", [1, 7, 16, 90])
def test_operations_on_numbers(width: int) -> None:
    x, v = normal(9, width), normal(width, seed=1)
    column = Weights.in_full(normal(1, width, seed=2))
    gate = x @ normal(1, width, seed=2).T
    centred = x - x.mean(1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * v + v
    expected: dict[str, tuple[list[Do], list[int], Any]] = {
        "norm": ([Do("norm", [0], 1, vector=v, offset=v, number=1e-5)], [width], normed),
        "relu": ([Do("relu", [0], 1)], [width], np.maximum(x, 0)),
        "sigmoid": ([Do("sigmoid", [0], 1)], [width], 1 / (1 + np.exp(-x))),
        "add": ([Do("add", [0, 0], 1, number=0.25)], [width], 1.25 * x),
        "scale": ([Do("scale", [0], 1, number=-3.0)], [width], -3 * x),
        "subtract": ([Do("subtract", [0], 1, number=1.0)], [width], 1 - x),
        "multiply": ([Do("multiply", [0], 1, vector=v)], [width], x * v),
        "concat": ([Do("concat", [0, 0], 1)], [2 * width], np.concatenate([x, x], axis=1)),
        "add rows": (
            [Do("product", [0], 1, matrix=column), Do("add rows", [0, 1, 0], 2)],
            [1, width],
            x + gate * x,
        ),
    }
    for name, (operations, widths, result) in expected.items():
        found = computed(x, operations, [width, *widths])
        assert np.allclose(found, result, atol=1e-5), name


def test_embeddings_have_a_factor_and_positions() -> None:
    table, waves = normal(70, 24), normal(9, 24, seed=1)
    codes, scales = in_8_bits(table)
    for matrix, rows in (
        (Weights.in_full(table), table),
        (Weights.in_8_bits(codes, scales), codes * scales[:, None]),
    ):
        values = np.zeros((2, 1, 3, 24), np.float32)
        run(
            [Do("embed", matrix=matrix, number=2.0), Do("concat", [0, 0], 1), Do("memorise", [1])],
            [24, 48],
            sentences=2,
            rows=4,
            source=3,
            size=4,
            heads=1,
            width=24,
            starts=np.array([0, 3, 4]),
            tokens=np.array([69, 0, 64, 5]),
            waves=waves,
            memories=[np.zeros((2, 1, 24, 3), np.float32), values],
        )
        expected = rows[[69, 0, 64]] * 2 + waves[:3]
        assert np.allclose(values[0, 0], expected, atol=1e-5)
        assert np.allclose(values[1, 0, 0], rows[5] * 2 + waves[0], atol=1e-5)


SHAPES = st.tuples(st.integers(1, 5), st.sampled_from([1, 4, 8, 16, 20, 33, 64, 70]))


@settings(deadline=None, max_examples=40)
@given(SHAPES, st.integers(0, 3), st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_attention_in_a_source(shape: tuple[int, int], clip: int, lengths: list[int]) -> None:
    heads, width = shape
    qkv = normal(sum(lengths), heads, 3, width)
    table = normal(2 * clip + 1, width, seed=1)
    starts = np.cumsum([0, *lengths]).tolist()
    more = {"vector": table} if clip else {}
    found = computed(
        qkv.reshape(sum(lengths), -1),
        [Do("attend_source", [0], 1, **more)],
        [3 * heads * width, heads * width],
        heads=heads,
        width=width,
        clip=clip,
        starts=starts,
    )
    for first, length in zip(starts, lengths, strict=False):
        q, k, v = qkv[first : first + length].transpose(2, 1, 0, 3)
        logits = q @ k.transpose(0, 2, 1)
        if clip:
            places = np.arange(length)
            away = np.clip(places - places[:, None], -clip, clip) + clip
            logits += np.einsum("hiw,ijw->hij", q, table[away])
        expected = softmax(logits / np.sqrt(np.float32(width))) @ v
        one = found[first : first + length].reshape(length, heads, width)
        assert np.allclose(one, expected.transpose(1, 0, 2), atol=1e-4)


@settings(deadline=None, max_examples=40)
@given(
    SHAPES,
    st.integers(1, 6),
    st.integers(0, 40),
    st.sampled_from([0, 2]),
    st.sampled_from([2, 4]),
)
def test_attention_to_slots(
    shape: tuple[int, int], beam: int, used: int, clip: int, size: int
) -> None:
    (heads, width), sentences = shape, 2
    capacity, rows, d = used + beam + 3, sentences * beam, heads * width
    kept = {2: np.float16, 4: np.float32}[size]
    qkv, table = normal(rows, heads, 3, width), normal(2 * clip + 1, width, seed=1)
    caches = [normal(sentences, capacity, heads, width, seed=n).astype(kept) for n in (2, 3)]
    random = np.random.default_rng(4)
    seen = random.random((sentences, beam, used + beam)) < 0.4
    for k in range(beam):
        seen[:, k, used:] = np.arange(beam) == k
    distances = random.integers(0, clip + 1, (sentences, used + beam))
    more = {"vector": table} if clip else {}
    found = computed(
        qkv.reshape(rows, -1),
        [Do("attend_slots", [0], 1, **more)],
        [3 * d, d],
        heads=heads,
        width=width,
        clip=clip,
        size=size,
        starts=list(range(0, rows + 1, beam)),
        used=used,
        slots=used + beam,
        capacity=capacity,
        caches=caches,
        seen=seen,
        distances=distances,
    )
    keys, values = (x[:, : used + beam].astype(np.float32) for x in caches)
    own = qkv.reshape(sentences, beam, heads, 3, width).astype(kept)
    assert np.array_equal(caches[0][:, used : used + beam], own[:, :, :, 1])
    assert np.array_equal(caches[1][:, used : used + beam], own[:, :, :, 2])
    q = qkv.reshape(sentences, beam, heads, 3, width)[:, :, :, 0]
    logits = np.einsum("bkhw,bshw->bkhs", q, keys)
    if clip:
        logits += np.einsum("bkhw,bsw->bkhs", q, table[distances])
    logits = np.where(seen[:, :, None], logits / np.sqrt(np.float32(width)), -np.inf)
    expected = np.einsum("bkhs,bshw->bkhw", softmax(logits), values).reshape(rows, d)
    assert np.allclose(found, expected, atol=1e-4 if size == 4 else 2e-3)


@settings(deadline=None, max_examples=40)
@given(
    SHAPES,
    st.integers(1, 9),
    st.lists(st.integers(1, 70), min_size=1, max_size=3),
    st.sampled_from([2, 4]),
)
def test_attention_to_the_source(
    shape: tuple[int, int], beam: int, lengths: list[int], size: int
) -> None:
    (heads, width), sentences, source = shape, len(lengths), max(*lengths, 9)
    kept, rows, d = {2: np.float16, 4: np.float32}[size], sentences * beam, heads * width
    q = normal(rows, heads, width)
    keys = normal(sentences, heads, width, source, seed=1).astype(kept)
    values = normal(sentences, heads, source, width, seed=2).astype(kept)
    found = computed(
        q.reshape(rows, d),
        [Do("attend_memory", [0], 1)],
        [d, d],
        heads=heads,
        width=width,
        size=size,
        starts=list(range(0, rows + 1, beam)),
        source=source,
        lengths=np.array(lengths),
        memories=[keys, values],
    )
    for b, length in enumerate(lengths):
        own = q[b * beam : (b + 1) * beam].transpose(1, 0, 2)
        logits = own @ keys[b, :, :, :length].astype(np.float32) / np.sqrt(np.float32(width))
        expected = softmax(logits) @ values[b, :, :length].astype(np.float32)
        one = found[b * beam : (b + 1) * beam].reshape(beam, heads, width)
        assert np.allclose(one, expected.transpose(1, 0, 2), atol=1e-4 if size == 4 else 2e-3)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("outputs", [5, 64, 1000, 2500])  # the last has three chunks
def test_the_best_tokens(outputs: int, full: bool) -> None:
    x, w = normal(7, 32), normal(outputs, 32, seed=1)
    w[outputs // 2] = w[1]  # a tie, of which the first is the best
    codes, scales = in_8_bits(w)
    matrix = Weights.in_full(w) if full else Weights.in_8_bits(codes, scales)
    unit = np.float32(0.03)
    layer = Do("best", [0], matrix=matrix, how="behind norm", number=unit)
    rounded = np.clip(np.rint(x / unit), -128, 127) * unit
    logits = x @ w.T if full else rounded @ (codes * scales[:, None]).T
    shift = logits.max(1, keepdims=True)
    table = logits - shift - np.log(np.exp(logits - shift).sum(1, keepdims=True))
    for count in {1, 4, min(outputs, 300), outputs}:
        values, ends = np.zeros((7, count), np.float32), np.zeros(7, np.float32)
        ids = np.zeros((7, count), np.int64)
        run(
            [Do("embed", matrix=Weights.in_full(x), number=1.0), layer],
            [32],
            sentences=1,
            rows=7,
            count=count,
            outputs=outputs,
            size=4,
            starts=np.array([0, 7]),
            tokens=np.arange(7),
            waves=np.zeros((7, 32), np.float32),
            values=values,
            ids=ids,
            ends=ends,
        )
        order = np.argsort(-table, axis=1, kind="stable")[:, :count]
        order = np.tile(np.arange(outputs), (7, 1)) if count == outputs else order
        assert np.allclose(values, np.take_along_axis(table, order, 1), atol=1e-4)
        assert np.allclose(ends, table[:, EOS], atol=1e-4)
        assert np.allclose(values, np.take_along_axis(table, ids, 1), atol=1e-4)
        tied = (ids == 1).argmax(1) < (ids == outputs // 2).argmax(1)
        both = (ids == 1).any(1) & (ids == outputs // 2).any(1)
        assert tied[both].all()
