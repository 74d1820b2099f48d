"""A translation in ids, and the rules every one follows: beam search and sampling share them."""

import math
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import Tensor

from kutta.data.tokenizer import BOS, EOS, PAD

NEVER = [PAD, BOS]  # ids no translation contains


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


def numbers(tensor: Tensor) -> list[Any]:
    """A tensor as Python numbers, whose kind the caller knows."""
    return cast(list[Any], tensor.tolist())


def length_limits(source: Tensor, max_length: int | None) -> Tensor:
    """The most tokens a translation of each sentence may have, (B,)."""
    lengths = ((source != PAD) & (source != EOS)).sum(dim=1)
    return 2 * lengths + 20 if max_length is None else torch.full_like(lengths, max_length)


def permitted(log_probabilities: Tensor, final: Tensor) -> Tensor:
    """The same (R, V) with -inf for what may not follow; in the `final` rows (R,) only EOS may.

    What is not a number is not a choice either.
    """
    log_probabilities.nan_to_num_(nan=-math.inf, posinf=-math.inf, neginf=-math.inf)
    log_probabilities[:, NEVER] = -math.inf
    if final.any():
        ends = log_probabilities[final, EOS]
        log_probabilities[final] = -math.inf
        log_probabilities[final, EOS] = ends
    return log_probabilities


def highest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of each row (R, N) and where they are; of equal ones the first.

    topk alone does not say which of equal values it takes.
    """
    more = min(count + 1, values.shape[1])
    top, where = values.topk(more, dim=1)
    tied = (top[:, 1:] == top[:, :-1]) & top[:, 1:].isfinite()
    rows = tied.any(dim=1)
    if rows.any():
        ranked, order = values[rows].sort(dim=1, descending=True, stable=True)
        top[rows], where[rows] = ranked[:, :more], order[:, :more]
    return top[:, :count], where[:, :count]
