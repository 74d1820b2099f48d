"""Hypotheses, and the constraints on them that beam search and sampling share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kutta.config import DecodeConfig
from kutta.data.tokenizer import BOS, EOS, PAD, Tokenizer
from kutta.translate.loops import looping

# numpy's functions lose the kind of number, so the names say it and not the types.
Floats = NDArray[Any]  # float32
Integers = NDArray[Any]  # int64


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


def length_limit(source: Sequence[int], decode: DecodeConfig) -> int:
    """The maximum number of tokens in the translation of a sentence, whose EOS does not count."""
    return decode.max_length or 2 * sum(id not in (PAD, EOS) for id in source) + 20


@dataclass(frozen=True)
class Continuations:
    """What may follow R rows: log-probabilities and ids (R, n), best first, and of EOS (R,).

    Of equal ones the lower id comes first. Where n is the whole vocabulary, ids are in order.
    """

    values: Floats
    ids: Integers
    ends: Floats

    def repeated(self, count: int) -> "Continuations":
        """Each row `count` times."""
        return Continuations(*(x.repeat(count, axis=0) for x in (self.values, self.ids, self.ends)))


def excluded(decode: DecodeConfig, tokens: Integers) -> int:
    """How many continuations of a row of tokens (R, 1 + length) `permitted` excludes at most."""
    banned = max(tokens.shape[1] - decode.no_repeat_ngram + 1, 0) if decode.no_repeat_ngram else 0
    return banned + 3  # and PAD, BOS, EOS


def permitted(
    found: Continuations,
    tokens: Integers,
    lengths: Integers,
    limits: Integers,
    decode: DecodeConfig,
) -> tuple[Floats, Integers]:
    """The values and ids (R, n), the values -inf for ids that may not follow.

    tokens (R, T) are the last of each row, the newest at the end, with BOS first where they are
    shorter and PAD before it; lengths (R,) count them without BOS. Non-finite values are excluded.
    No n-gram of `no_repeat_ngram` tokens is repeated. EOS is excluded before `min_length` tokens,
    unless nothing else is left. In rows that have reached their limit (R,), or repeat themselves
    (`looping`), only EOS may follow; this rule overrides the others.
    """
    ids = found.ids.copy()
    values = np.where(np.isfinite(found.values), found.values, np.float32(-math.inf))
    values[(ids == PAD) | (ids == BOS)] = -math.inf  # never generated
    final: NDArray[np.bool_] = (limits <= lengths) | looping(tokens, lengths, limits)
    if decode.no_repeat_ngram:
        _exclude(values, ids, repeating(tokens, decode.no_repeat_ngram))
    early = lengths < decode.min_length
    if early.any():
        values[early[:, None] & (ids == EOS)] = -math.inf
        final = final | (early & (values.max(axis=1) == -math.inf))
    if final.any():
        values[final] = -math.inf
        _end(values, ids, found.ends, np.flatnonzero(final))
    return values, ids


def _exclude(values: Floats, ids: Integers, banned: Integers) -> None:
    """Exclude banned ids (R, W)."""
    for column in range(banned.shape[1]):
        values[ids == banned[:, column, None]] = -math.inf


def _end(values: Floats, ids: Integers, ends: Floats, rows: NDArray[Any]) -> None:
    """Make EOS the only continuation of some rows, with its own value."""
    for row in rows:
        places = np.flatnonzero(ids[row] == EOS)
        place = places[0] if len(places) else 0
        ids[row, place] = EOS
        values[row, place] = ends[row] if math.isfinite(ends[row]) else -math.inf


def repeating(tokens: Integers, n: int) -> Integers:
    """The ids (R, W), padded with PAD, that would repeat an n-gram of tokens (R, T).

    They are the last tokens of n-grams whose first n - 1 tokens are the last n - 1 of the row.
    """
    if tokens.shape[1] < n:
        return np.empty((len(tokens), 0), np.int64)
    ngrams = np.lib.stride_tricks.sliding_window_view(tokens, n, axis=1)  # (R, T - n + 1, n)
    context = tokens[:, tokens.shape[1] - n + 1 :]
    again = (ngrams[:, :, :-1] == context[:, None]).all(axis=2)
    return np.where(again, ngrams[:, :, -1], PAD)
