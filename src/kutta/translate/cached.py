"""Decoding with keys and values in memory: what torch and the runtime have in common."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kutta.data.tokenizer import PAD
from kutta.translate.ancestors import ROOM, Ancestors, Array, Buffers
from kutta.translate.hypothesis import Continuations, Floats, Integers


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
    """What a step is given, for B sentences with K hypotheses each.

    tokens (K, B); positions (B,); bias (B, 1, K, n + K), 0 where a hypothesis sees a slot and else
    -inf; offsets (B, clip + 1, n + K), those of the slots, one-hot, or None; memory_bias
    (B, 1, 1, S), -inf at padding, or None without a source; and how many of the best are needed.
    """

    tokens: Integers
    positions: Integers
    bias: Floats
    offsets: Floats | None
    memory_bias: Floats | None
    count: int


class Cached(ABC):
    """A Decoding over caches of keys and values, which are never reordered.

    A sentence has slots, K more after each step, and each hypothesis sees those of its ancestors.
    Slots that none sees are removed from time to time. The projected source is stored once for all
    hypotheses of a sentence.
    """

    def __init__(self, beam: int, sizes: Sizes, zeros: Callable[[tuple[int, ...]], Array]) -> None:
        self.beam, self.clip = beam, sizes.clip
        self.ancestors = Ancestors(0, beam)
        self.caches = Buffers(zeros, 2 * sizes.caches, sizes.heads, sizes.width)
        self.memories = Buffers(zeros, 2 * sizes.memories, sizes.heads, sizes.width)
        self.memory_bias: Floats = np.zeros((0, 1, 1, 0), np.float32)

    @abstractmethod
    def _read(self, source: Integers) -> list[Array]:
        """Source ids (b, S) -> keys and values (b, H, S, d_h) of every cross-attention."""

    @abstractmethod
    def _run(self, step: Step) -> Continuations:
        """Compute a step; it fills the next K slots of the caches."""

    def enter(self, columns: Sequence[int], sources: Sequence[Sequence[int]]) -> None:
        self.ancestors.clear(columns)
        if not self.memories.arrays:
            return
        widths = [len(source) for source in sources]
        ids = np.full((len(sources), max(widths)), PAD, np.int64)
        for row, source in zip(ids, sources, strict=True):
            row[: len(source)] = source
        read = self._read(ids)
        self._widen(ids.shape[1])
        for memory, array in zip(self.memories.arrays, read, strict=True):
            memory[columns, :, : ids.shape[1]] = array
        self.memory_bias[columns] = -math.inf
        for column, width in zip(columns, widths, strict=True):
            self.memory_bias[column, 0, 0, :width] = 0.0

    def _widen(self, width: int) -> None:
        """Have room for sources of this many tokens."""
        sentences, missing = len(self.memory_bias), width - self.memories.used
        if missing > 0:
            padding = np.full((sentences, 1, 1, missing), -math.inf, np.float32)
            self.memory_bias = np.concatenate([self.memory_bias, padding], axis=3)
            self.memories.widen(width)

    def step(self, tokens: Integers, count: int) -> Continuations:
        if self.ancestors.idle():
            self._pack(range(len(tokens)), len(tokens))
        self.caches.reserve(self.beam)
        seen = self.ancestors.visible()[:, None]
        given = Step(
            tokens=np.ascontiguousarray(tokens.T),
            positions=self.ancestors.lengths,
            bias=np.where(seen, np.float32(0), np.float32(-math.inf)),
            offsets=self.ancestors.offsets(self.clip) if self.clip else None,
            memory_bias=self.memory_bias if self.memories.arrays else None,
            count=count,
        )
        found = self._run(given)
        self.caches.used += self.beam
        return found

    def extend(self, parents: Integers) -> None:
        self.ancestors.extend(parents)

    def select(self, columns: Sequence[int], total: int) -> None:
        columns = list(columns)
        self._pack(columns, total)
        width = int(np.isfinite(self.memory_bias[columns]).sum(axis=3).max(initial=0))
        slots = np.broadcast_to(np.arange(width), (len(columns), width))
        self.memories.select(columns, slots, total)
        bias = np.full((total, 1, 1, width), -math.inf, np.float32)
        bias[:, :, :, :1] = 0.0  # what has no source yet sees something
        bias[: len(columns)] = self.memory_bias[columns][..., :width]
        self.memory_bias = bias

    def _pack(self, columns: Sequence[int], total: int) -> None:
        """Keep these columns, and of each the slots that are seen."""
        slots, used = self.ancestors.needed(columns)
        self.caches.select(columns, slots, total, room=ROOM * self.beam)
        self.ancestors.select(columns, slots, used, total)
