"""Sampling of translations, with a seed."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from kutta.config import DecodeConfig, Sampling
from kutta.data.tokenizer import BOS, EOS
from kutta.translate.hypothesis import Hypothesis, highest, length_limits, numbers, permitted
from kutta.translate.scorer import Scorer, State


@torch.inference_mode()
def sample(
    scorer: Scorer[State],
    source: Tensor,
    sampling: Sampling,
    decode: DecodeConfig,
    streams: Sequence[int] | None = None,
) -> list[Hypothesis]:
    """One random translation of each sentence of source (B, S); its score is its log-probability.

    A sample depends on the seed and the sentence's number in `streams` (by default its row), not on
    the other sentences of the batch. The length limits and `no_repeat_ngram` of `decode` apply; its
    beam and length penalty are not used.
    """
    count, device = len(source), source.device
    drawn = [Hypothesis([], -math.inf, -math.inf)] * count
    if count == 0:
        return drawn
    limits = length_limits(source, decode)
    # A uniform number for every position of every sentence, (B, longest limit + 1).
    streams, width = range(count) if streams is None else streams, int(limits.max()) + 1
    rows = [np.random.default_rng([sampling.seed, stream]).random(width) for stream in streams]
    draws = torch.tensor(np.stack(rows)).to(device)
    state = scorer.start(source)
    sentences: list[int] = list(range(count))
    scores = torch.zeros(count, device=device)
    tokens = torch.full((count, 1), BOS, device=device)
    while sentences:
        position = tokens.shape[1] - 1
        log_probabilities = scorer.step(tokens[:, -1], state)
        log_probabilities = permitted(log_probabilities, tokens, limits, decode)
        words = _draw(log_probabilities, draws[:, position], sampling)
        scores = scores + log_probabilities.gather(1, words[:, None])[:, 0]
        ends = words == EOS
        for row in numbers(ends.nonzero()[:, 0]):
            drawn[sentences[row]] = Hypothesis.of(numbers(tokens[row, 1:]), float(scores[row]), 0.0)
        tokens = torch.cat([tokens, words[:, None]], dim=1)
        if ends.any():
            kept = (~ends).nonzero()[:, 0]
            sentences = [sentences[int(row)] for row in numbers(kept)]
            limits, draws, scores, tokens = (x[kept] for x in (limits, draws, scores, tokens))
            state.select(kept)
    return drawn


def _draw(log_probabilities: Tensor, uniform: Tensor, sampling: Sampling) -> Tensor:
    """Sample a token for each row of (B, V) with its uniform number (B,); returns (B,)."""
    # A row without finite log-probabilities ends.
    hopeless = log_probabilities.amax(dim=1).isneginf()
    weights = log_probabilities.clone()
    weights[hopeless, EOS] = 0.0
    words = torch.arange(weights.shape[1], device=weights.device).expand_as(weights)
    if sampling.top_k or sampling.top_p < 1.0:
        weights, words = highest(weights, min(sampling.top_k or weights.shape[1], weights.shape[1]))
    # Subtract the maximum, in double precision, so that no temperature is too low.
    weights = weights.double() - weights.amax(dim=1, keepdim=True)
    probabilities = (weights / sampling.temperature).softmax(dim=1)
    if sampling.top_p < 1.0:
        before = probabilities.cumsum(dim=1) - probabilities
        probabilities = probabilities.where(before < sampling.top_p, 0.0)
    mass = probabilities.cumsum(dim=1)
    chosen = torch.searchsorted(mass, uniform[:, None] * mass[:, -1:], right=True)
    return words.gather(1, chosen.clamp_(max=words.shape[1] - 1))[:, 0]
