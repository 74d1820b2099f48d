"""Hypotheses, and the constraints on them that beam search and sampling share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import Tensor

from kutta.config import DecodeConfig
from kutta.data.tokenizer import BOS, EOS, PAD, Tokenizer
from kutta.translate.loops import SHORTEST_LOOP, looping


@dataclass(frozen=True)
class Hypothesis:
    """A translation: tokens without EOS; score = log-probability / length^penalty, EOS counted."""

    tokens: list[int]
    score: float
    log_probability: float

    @classmethod
    def of(cls, tokens: list[int], log_probability: float, penalty: float) -> Self:
        """The hypothesis of these tokens and an EOS, scored."""
        return cls(tokens, log_probability / (len(tokens) + 1) ** penalty, log_probability)


def one_line(tokens: Sequence[int], tokenizer: Tokenizer) -> str:
    """The text of tokens on one line: line separators become spaces."""
    return " ".join(tokenizer.decode(tokens).splitlines()).strip()


def numbers(tensor: Tensor) -> list[Any]:
    """A tensor as a list of Python numbers."""
    return cast(list[Any], tensor.tolist())


def length_limits(source: Tensor, decode: DecodeConfig) -> Tensor:
    """The maximum number of tokens in the translation of each sentence, (B,)."""
    lengths = ((source != PAD) & (source != EOS)).sum(dim=1)
    return torch.full_like(lengths, decode.max_length) if decode.max_length else 2 * lengths + 20


def permitted(
    log_probabilities: Tensor, tokens: Tensor, limits: Tensor, decode: DecodeConfig
) -> Tensor:
    """The same (R, V) with -inf for ids that may not follow tokens (R, 1 + length), BOS first.

    Non-finite values are excluded. No n-gram of `no_repeat_ngram` tokens is repeated. EOS is
    excluded before `min_length` tokens, unless nothing else is left. In rows that have reached
    their limit (R,), or repeat themselves (`looping`), only EOS may follow; this rule overrides
    the others.
    """
    length = tokens.shape[1] - 1
    log_probabilities.nan_to_num_(nan=-math.inf, posinf=-math.inf, neginf=-math.inf)
    log_probabilities[:, [PAD, BOS]] = -math.inf  # never generated
    ends = log_probabilities[:, EOS].clone()
    final = limits <= length
    if length >= SHORTEST_LOOP:
        found = looping(tokens[:, 1:].cpu().numpy(), limits.cpu().numpy())
        final = final | torch.from_numpy(found).to(final.device)
    if decode.no_repeat_ngram:
        log_probabilities.scatter_(1, repeating(tokens, decode.no_repeat_ngram), -math.inf)
    if length < decode.min_length:
        log_probabilities[:, EOS] = -math.inf
        final = final | log_probabilities.amax(dim=1).isneginf()
    if final.any():
        log_probabilities[final] = -math.inf
        log_probabilities[final, EOS] = ends[final]
    return log_probabilities


def repeating(tokens: Tensor, n: int) -> Tensor:
    """The ids (R, W), padded with PAD, that would repeat an n-gram of tokens (R, T).

    They are the last tokens of n-grams whose first n - 1 tokens are the last n - 1 of the row.
    """
    if tokens.shape[1] < n:
        return tokens.new_empty(len(tokens), 0)
    ngrams = tokens.unfold(1, n, 1)  # (R, T - n + 1, n)
    context = tokens[:, tokens.shape[1] - n + 1 :]
    again = (ngrams[:, :, :-1] == context[:, None]).all(dim=2)
    return ngrams[:, :, -1].where(again, PAD)


def highest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest values of each row (R, N) and their indices; of equal ones the first.

    topk does not define which of equal values it returns.
    """
    more = min(count + 1, values.shape[1])
    top, where = values.topk(more, dim=1)
    tied = (top[:, 1:] == top[:, :-1]) & top[:, 1:].isfinite()
    rows = tied.any(dim=1)
    if rows.any():
        ranked, order = values[rows].sort(dim=1, descending=True, stable=True)
        top[rows], where[rows] = ranked[:, :more], order[:, :more]
    return top[:, :count], where[:, :count]
