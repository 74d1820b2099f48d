"""The interface between search and models, and the ensemble of several models."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kutta.data.tokenizer import BOS, EOS
from kutta.translate.hypothesis import Continuations, Floats, Integers


class Decoding(Protocol):
    """Decodes the sentences of B columns at once, K hypotheses of each."""

    def enter(self, columns: Sequence[int], sources: Sequence[Sequence[int]]) -> None:
        """Read sources, ids with EOS, and start to translate them in these columns."""
        ...

    def step(self, tokens: Integers, count: int) -> Continuations:
        """Feed tokens (B, K); return the `count` best continuations of the B*K rows, or more.

        A count of at least the vocabulary gives all of them.
        """
        ...

    def extend(self, parents: Integers) -> None:
        """Say which hypothesis each one now continues: parents (B, K)."""
        ...

    def select(self, columns: Sequence[int], total: int) -> None:
        """Keep these columns, which come first from now on, and have `total` columns."""
        ...


class Scorer(Protocol):
    """Scores continuations; all that the search knows of a model."""

    @property
    def vocabulary(self) -> int:
        """The number of target tokens."""
        ...

    def start(self, beam: int) -> Decoding:
        """Decoding with no columns yet."""
        ...


@dataclass(frozen=True)
class Ensemble:
    """The average of the probabilities of several models over the same vocabulary."""

    members: Sequence[Scorer]

    @property
    def vocabulary(self) -> int:
        return self.members[0].vocabulary

    def start(self, beam: int) -> "_Together":
        return _Together([member.start(beam) for member in self.members], self.vocabulary)


@dataclass(frozen=True)
class _Together:
    """The decoding of all members."""

    members: list[Decoding]
    vocabulary: int

    def enter(self, columns: Sequence[int], sources: Sequence[Sequence[int]]) -> None:
        for member in self.members:
            member.enter(columns, sources)

    def step(self, tokens: Integers, count: int) -> Continuations:
        each = np.stack([member.step(tokens, self.vocabulary).values for member in self.members])
        highest = each.max(axis=0)
        with np.errstate(invalid="ignore"):
            summed = np.log(np.exp(each - highest).sum(axis=0)) + highest
        # A token that is impossible for all of them is -inf - -inf above.
        shared: Floats = summed - math.log(len(self.members))
        mean: Floats = np.where(highest == -math.inf, highest, shared)
        return best_of(mean.astype(np.float32), count)

    def extend(self, parents: Integers) -> None:
        for member in self.members:
            member.extend(parents)

    def select(self, columns: Sequence[int], total: int) -> None:
        for member in self.members:
            member.select(columns, total)


@dataclass(frozen=True)
class Continuation:
    """A language model that continues prompts of one length."""

    model: Scorer

    @property
    def vocabulary(self) -> int:
        return self.model.vocabulary

    def start(self, beam: int) -> "_Continuing":
        return _Continuing(self.model.start(beam), beam)


@dataclass
class _Continuing:
    """The decoding of a continued text: `held` (B, K) is the prompt's last token, not yet fed."""

    decoding: Decoding
    beam: int
    held: Integers | None = None

    def enter(self, columns: Sequence[int], sources: Sequence[Sequence[int]]) -> None:
        self.decoding.enter(columns, sources)
        text = np.array([[BOS, *source] for source in sources], np.int64)
        text = np.repeat(text[:, None], self.beam, axis=1)  # (B, K, P + 1)
        same = np.broadcast_to(np.arange(self.beam), text.shape[:2])
        for position in range(text.shape[2] - 1):
            self.decoding.step(text[:, :, position], 1)
            self.decoding.extend(same)
        self.held = text[:, :, -1]

    def step(self, tokens: Integers, count: int) -> Continuations:
        # A search starts by feeding BOS; a continuation starts with the last token of its prompt.
        if self.held is not None:
            tokens, self.held = self.held, None
        return self.decoding.step(tokens, count)

    def extend(self, parents: Integers) -> None:
        self.decoding.extend(parents)

    def select(self, columns: Sequence[int], total: int) -> None:
        self.decoding.select(columns, total)


def best_of(log_probabilities: Floats, count: int) -> Continuations:
    """The `count` best of all log-probabilities (R, V)."""
    rows, vocabulary = log_probabilities.shape
    ends = log_probabilities[:, EOS]
    if count >= vocabulary:
        ids: Integers = np.tile(np.arange(vocabulary, dtype=np.int64), (rows, 1))
        return Continuations(log_probabilities, ids, ends)
    order = np.argsort(-log_probabilities, axis=1, kind="stable")[:, :count]
    values = np.take_along_axis(log_probabilities, order, axis=1)
    return Continuations(values, order.astype(np.int64), ends)
