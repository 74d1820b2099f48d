"""Sampling of translations, with a seed."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kutta.config import DecodeConfig, Sampling
from kutta.data.tokenizer import BOS, EOS
from kutta.translate.hypothesis import Floats, Hypothesis, Integers, length_limit, permitted
from kutta.translate.scorer import Scorer


def sample(
    scorer: Scorer,
    sources: Sequence[Sequence[int]],
    sampling: Sampling,
    decode: DecodeConfig,
    streams: Sequence[int] | None = None,
) -> list[Hypothesis]:
    """One random translation of each sentence, ids with EOS; its score is its log-probability.

    A sample depends on the seed and the sentence's number in `streams` (by default its row), not on
    the other sentences of the batch. The length limits and `no_repeat_ngram` of `decode` apply; its
    beam and length penalty are not used.
    """
    count = len(sources)
    drawn = [Hypothesis([], -math.inf, -math.inf)] * count
    if count == 0:
        return drawn
    limits = np.array([length_limit(source, decode) for source in sources])
    # A uniform number for every position of every sentence, (B, longest limit + 1).
    streams, width = range(count) if streams is None else streams, int(limits.max()) + 1
    rows = [np.random.default_rng([sampling.seed, stream]).random(width) for stream in streams]
    draws = np.stack(rows)
    decoding = scorer.start(1)
    decoding.select([], count)
    decoding.enter(range(count), sources)
    sentences = list(range(count))
    scores = np.zeros(count, np.float32)
    tokens = np.full((count, 1), BOS, np.int64)
    while sentences:
        position = tokens.shape[1] - 1
        following = decoding.step(tokens[:, -1:], scorer.vocabulary)
        lengths = np.full(len(tokens), position)
        values, _ = permitted(following, tokens, lengths, limits, decode)
        words = _draw(values, draws[:, position], sampling)
        scores = scores + np.take_along_axis(values, words[:, None], axis=1)[:, 0]
        ends = words == EOS
        for row in np.flatnonzero(ends):
            one = Hypothesis.of(tokens[row, 1:].tolist(), float(scores[row]), 0.0)
            drawn[sentences[row]] = one
        tokens = np.concatenate([tokens, words[:, None]], axis=1)
        decoding.extend(np.zeros((len(tokens), 1), np.int64))
        if ends.any():
            kept = np.flatnonzero(~ends).tolist()
            sentences = [sentences[row] for row in kept]
            limits, draws, scores, tokens = (x[kept] for x in (limits, draws, scores, tokens))
            decoding.select(kept, len(kept))
    return drawn


def _draw(log_probabilities: Floats, uniform: NDArray[Any], sampling: Sampling) -> Integers:
    """Sample a token for each row of (B, V) with its uniform number (B,); returns (B,)."""
    # A row without finite log-probabilities ends.
    hopeless: NDArray[np.bool_] = log_probabilities.max(axis=1) == -math.inf
    weights = log_probabilities.astype(np.float64)
    weights[hopeless, EOS] = 0.0
    words: Integers = np.broadcast_to(np.arange(weights.shape[1], dtype=np.int64), weights.shape)
    if sampling.top_k or sampling.top_p < 1.0:
        words = np.argsort(-weights, axis=1, kind="stable")
        words = words[:, : sampling.top_k or None]
        weights = np.take_along_axis(weights, words, axis=1)
    # Subtract the maximum, in double precision, so that no temperature is too low.
    weights = (weights - weights.max(axis=1, keepdims=True)) / sampling.temperature
    probabilities = np.exp(weights)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    if sampling.top_p < 1.0:
        before = probabilities.cumsum(axis=1) - probabilities
        probabilities = np.where(before < sampling.top_p, probabilities, 0.0)
    mass = probabilities.cumsum(axis=1)
    # The first token whose mass exceeds the number.
    chosen = (mass <= uniform[:, None] * mass[:, -1:]).sum(axis=1)
    chosen = np.minimum(chosen, words.shape[1] - 1)
    return np.take_along_axis(words, chosen[:, None], axis=1)[:, 0]
