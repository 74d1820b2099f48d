"""Drawing translations at random, by a seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kutta.data.tokenizer import BOS, EOS
from kutta.errors import InputError
from kutta.translate.hypothesis import Hypothesis, highest, length_limits, numbers, permitted
from kutta.translate.scorer import Scorer, State


@dataclass(frozen=True)
class Sampling:
    """How to draw a translation: from p^(1/temperature), cut to the likeliest tokens.

    `top_k` (0: all) keeps so many tokens, `top_p` the fewest that have this much of the mass.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        for wrong, sentence in (
            (
                not 0.0 < self.temperature < math.inf,
                f"temperature = {self.temperature} cannot be; it must be above 0 (for the "
                "likeliest tokens, take top_k = 1)",
            ),
            (self.top_k < 0, f"top_k = {self.top_k} is negative; 0 keeps all tokens"),
            (
                not 0.0 < self.top_p <= 1.0,
                f"top_p = {self.top_p} is no share; it must be above 0 and at most 1",
            ),
            (self.seed < 0, f"seed = {self.seed} is negative; it must be 0 or more"),
        ):
            if wrong:
                raise InputError(f"{sentence}.")


@torch.inference_mode()
def sample(
    scorer: Scorer[State],
    source: Tensor,
    sampling: Sampling,
    max_length: int | None = None,
    streams: Sequence[int] | None = None,
    min_length: int = 0,
    no_repeat_ngram: int = 0,
) -> list[Hypothesis]:
    """One random translation of each sentence of source (B, S); its score is its log-probability.

    What is drawn depends on the seed and the sentence's number in `streams` (by default its row),
    not on the other sentences of the batch. The lengths and `no_repeat_ngram` are those of
    `beam_search`; what they rule out is never drawn.
    """
    count, device = len(source), source.device
    drawn = [Hypothesis([], -math.inf, -math.inf)] * count
    if count == 0:
        return drawn
    limits = length_limits(source, max_length)
    draws = _draws(sampling.seed, range(count) if streams is None else streams, limits).to(device)
    state = scorer.start(source)
    sentences: list[int] = list(range(count))
    scores = torch.zeros(count, device=device)
    tokens = torch.full((count, 1), BOS, device=device)
    while sentences:
        position = tokens.shape[1] - 1
        log_probabilities = permitted(
            scorer.step(tokens[:, -1], state), tokens, limits, min_length, no_repeat_ngram
        )
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


def _draws(seed: int, streams: Sequence[int], limits: Tensor) -> Tensor:
    """Uniform numbers for every position of every sentence, (B, longest limit + 1)."""
    width = int(limits.max()) + 1
    rows = [np.random.default_rng([seed, stream]).random(width) for stream in streams]
    return torch.tensor(np.stack(rows))


def _draw(log_probabilities: Tensor, uniform: Tensor, sampling: Sampling) -> Tensor:
    """Draw a token for each row of (B, V) by its uniform number (B,), returns (B,)."""
    # A row without any choice, where the model's numbers broke down, ends.
    hopeless = log_probabilities.amax(dim=1).isneginf()
    weights = log_probabilities.clone()
    weights[hopeless, EOS] = 0.0
    words = torch.arange(weights.shape[1], device=weights.device).expand_as(weights)
    if sampling.top_k or sampling.top_p < 1.0:
        weights, words = highest(weights, min(sampling.top_k or weights.shape[1], weights.shape[1]))
    # The highest becomes 0 first, and in double precision, so that no temperature is too low.
    weights = weights.double() - weights.amax(dim=1, keepdim=True)
    probabilities = (weights / sampling.temperature).softmax(dim=1)
    if sampling.top_p < 1.0:
        before = probabilities.cumsum(dim=1) - probabilities
        probabilities = probabilities.where(before < sampling.top_p, 0.0)
    mass = probabilities.cumsum(dim=1)
    chosen = torch.searchsorted(mass, uniform[:, None] * mass[:, -1:], right=True)
    return words.gather(1, chosen.clamp_(max=words.shape[1] - 1))[:, 0]
