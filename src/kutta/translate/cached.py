"""Decoding with keys and values in memory: what torch and the runtime have in common."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kutta.data.tokenizer import PAD
from kutta.translate.ancestors import Ancestors
from kutta.translate.hypothesis import Continuations, Floats, Integers
from kutta.translate.keyvalues import ROOM, Array, Caches, Memories, Zeros

# Source tokens that are encoded together on a CPU: more gain no speed, but take memory.
SOURCE_TOKENS = 512


@dataclass(frozen=True)
class Sizes:
    """What a decoder keeps: how many caches and projected memories of how many heads and numbers.

    `clip` is the largest relative position that self-attention tells apart; 0 for none.
    """

    caches: int
    memories: int
    heads: int
    width: int
    clip: int


@dataclass(frozen=True)
class Step:
    """What a step is given, for B sentences with K hypotheses each, or one that stands for all.

    tokens (K, B); positions (B,); seen (B, K, n + K), whether a hypothesis sees a slot; distances
    (B, n + K), relative positions of the slots, 0 to clip, or None; lengths (B,) of the sources,
    whose width is `source`, or None without a source; and how many of the best are needed.
    """

    tokens: Integers
    positions: Integers
    seen: NDArray[np.bool_]
    distances: Integers | None
    clip: int
    lengths: Integers | None
    source: int
    count: int

    @property
    def bias(self) -> Floats:
        """What is seen, as a bias (B, 1, K, n + K): 0, or -inf where a slot is not seen."""
        return _bias(self.seen)[:, None]

    @property
    def offsets(self) -> Floats | None:
        """The distances, one-hot: (B, clip + 1, n + K)."""
        if self.distances is None:
            return None
        offsets = np.arange(self.clip + 1)[:, None]
        return (self.distances[:, None] == offsets).astype(np.float32)

    @property
    def memory_bias(self) -> Floats | None:
        """A bias (B, 1, 1, S) for the source, -inf at padding."""
        if self.lengths is None:
            return None
        return _bias(np.arange(self.source) < self.lengths[:, None])[:, None, None]


def _bias(seen: NDArray[np.bool_]) -> Floats:
    return np.where(seen, np.float32(0), np.float32(-math.inf))


class Cached(ABC):
    """A Decoding over caches of keys and values, which are never reordered.

    A sentence has slots, K more after each step, and each hypothesis sees those of its ancestors.
    Slots that none sees are removed from time to time. The projected source is stored once for all
    hypotheses of a sentence.
    """

    def __init__(
        self,
        beam: int,
        sizes: Sizes,
        zeros: Zeros,
        at_once: int = SOURCE_TOKENS,
        room: int = ROOM,
        by_sentence: bool = False,
    ) -> None:
        self.beam, self.clip, self.at_once = beam, sizes.clip, at_once
        self.ancestors = Ancestors(0, beam)
        of_slot = sizes.heads, sizes.width
        self.caches = Caches(zeros, 2 * sizes.caches, *of_slot, room, by_sentence)
        self.memories = Memories(zeros, sizes.memories, sizes.heads, sizes.width)
        self.sources: list[Sequence[int]] = []  # those of the columns
        self.lengths = np.zeros(0, np.int64)  # of the sources; what has none sees one place

    @abstractmethod
    def _read(self, source: Integers) -> list[Array]:
        """Source ids (b, S) -> the arrays of `Memories` for every cross-attention."""

    @abstractmethod
    def _run(self, step: Step) -> Continuations:
        """Compute a step; it fills the next K slots of the caches, which are reserved."""

    def enter(self, columns: Sequence[int], sources: Sequence[Sequence[int]]) -> None:
        self.ancestors.clear(columns)
        entered = dict(zip(columns, sources, strict=True))
        self.sources = [entered.get(column, old) for column, old in enumerate(self.sources)]
        if not self.memories.arrays:
            return
        widths = np.array([len(source) for source in sources])
        if widths.max() > self.memories.width:
            sentences = len(self.lengths)
            self.memories.select(range(sentences), int(widths.max()), sentences)
        for rows in together(widths, self.at_once):
            ids = np.full((len(rows), widths[rows[0]]), PAD, np.int64)
            for row, number in enumerate(rows):
                ids[row, : widths[number]] = sources[number]
            chosen = [columns[number] for number in rows]
            self.memories.write(chosen, self._read(ids))
        self.lengths[columns] = widths

    def step(self, tokens: Integers, count: int) -> Continuations:
        if self.ancestors.idle():
            self._pack(range(len(tokens)), len(tokens))
        # All hypotheses of a sentence begin alike, so the first stands for the others.
        begins = not self.ancestors.lengths.any() and bool((tokens == tokens[:, :1]).all())
        computed = 1 if begins else self.beam
        slots = self.caches.used + computed
        given = Step(
            tokens=np.ascontiguousarray(tokens[:, :computed].T),
            positions=self.ancestors.lengths,
            seen=self.ancestors.visible()[:, :computed, :slots],
            distances=self.ancestors.distances(self.clip)[:, :slots] if self.clip else None,
            clip=self.clip,
            lengths=self.lengths if self.memories.arrays else None,
            source=self.memories.width,
            count=count,
        )
        self.caches.reserve(self.beam)
        found = self._run(given)
        if computed < self.beam:
            self.caches.repeat(self.beam)
            found = found.repeated(self.beam)
        self.caches.used += self.beam
        return found

    def extend(self, parents: Integers) -> None:
        self.ancestors.extend(parents)

    def select(self, columns: Sequence[int], total: int) -> None:
        columns = list(columns)
        none: list[Sequence[int]] = [[]] * (total - len(columns))
        self.sources = [self.sources[column] for column in columns] + none
        self._pack(columns, total)
        lengths = np.ones(total, np.int64)
        lengths[: len(columns)] = self.lengths[columns]
        self.lengths = lengths
        if self.memories.arrays:
            self.memories.select(columns, int(lengths.max(initial=0)), total)

    def _pack(self, columns: Sequence[int], total: int) -> None:
        """Keep these columns, and of each the slots that are seen."""
        slots, used = self.ancestors.needed(columns)
        self.caches.select(columns, slots, total)
        self.ancestors.select(columns, slots, used, total)


def together(widths: Integers, tokens: int) -> list[list[int]]:
    """The numbers of sources that are read together, the longest first.

    A group has at most so many tokens, padding counted, or is a single source.
    """
    groups: list[list[int]] = []
    for number in np.argsort(-widths, kind="stable").tolist():
        if not groups or (len(groups[-1]) + 1) * widths[groups[-1][0]] > tokens:
            groups.append([])
        groups[-1].append(number)
    return groups
