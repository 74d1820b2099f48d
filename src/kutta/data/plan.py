"""Which pairs form which micro-batch: a function of lengths, seed and number alone.

Pairs are sorted from long to short along a snake through both lengths and cut where a batch is
full. A huge store is planned one window at a time, so memory does not grow with its size.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kutta.data.column import Lengths
from kutta.errors import InputError

Indices = NDArray[np.int64]

WINDOW = 32  # blocks of a store that are planned together: two million pairs
# Widths for batches of few shapes: three to an octave, all multiples of 4, from 32 on of 8.
_OCTAVES = (1 << power for power in range(4, 30))
_STEPS = np.array([8, 12, *(octave * part // 4 for octave in _OCTAVES for part in (4, 5, 6))])


class Blocks(Protocol):
    """Pairs in numbered blocks, with their lengths known without reading them: a Store."""

    @property
    def blocks(self) -> int: ...
    def lengths(self, blocks: Sequence[int]) -> tuple[Lengths, Lengths]: ...
    def numbers(self, blocks: Sequence[int]) -> Indices: ...


class BatchPlan:
    """The micro-batches of all epochs, by number.

    An epoch visits the windows of the store in a drawn order. A window has as many batches in
    one epoch as in another, because its sorted lengths are the same: so epoch, window and batch
    follow from the number by arithmetic, and only the window in hand is planned.
    """

    def __init__(self, store: Blocks, batch_tokens: int, seed: int, few_shapes: bool) -> None:
        self._store, self._batch_tokens, self._seed = store, batch_tokens, seed
        self._few_shapes = few_shapes
        count = -(-store.blocks // WINDOW)
        # Every count-th block, so that a window has something from everywhere in the corpus.
        self._windows = [range(first, store.blocks, count) for first in range(count)]
        self._sizes = np.array([self._size(window) for window in self._windows])
        self._planned: tuple[int, int] | None = None
        self._batches: list[Indices] = []

    @property
    def batches_per_epoch(self) -> int:
        return int(self._sizes.sum())

    def indices(self, number: int) -> Indices:
        """The numbers of the pairs in micro-batch `number`, counted from the first epoch on."""
        epoch, index = divmod(number, self.batches_per_epoch)
        count = len(self._windows)
        visits = np.random.default_rng([self._seed, epoch, count]).permutation(count)
        ends = self._sizes[visits].cumsum()
        turn = int(np.searchsorted(ends, index, side="right"))
        window = int(visits[turn])
        if self._planned != (epoch, window):
            self._batches = []  # the former window goes before the next one comes
            self._batches = self._plan(epoch, window)
            self._planned = epoch, window
        return self._batches[index - int(ends[turn])]  # counted from the end of the window

    def largest(self) -> Indices:
        """The pairs of the batch with most cells, rows x (S + T); of several the longest one."""
        best, pairs = (0, 0), np.zeros(0, np.int64)
        for window in self._windows:
            source, target = self._lengths(window)
            order = longest_first(source, target)
            starts = cuts(source, target, self._batch_tokens)
            rows = np.diff(starts, append=len(order))
            sides = [np.maximum.reduceat(side[order], starts) + 1 for side in (source, target)]
            cells, longest = rows * (sides[0] + sides[1]), np.maximum(*sides)
            top = int(np.lexsort((longest, cells))[-1])
            if (size := (int(cells[top]), int(longest[top]))) > best:
                best, chosen = size, order[starts[top] : starts[top] + rows[top]]
                pairs = self._store.numbers(window)[chosen]
        return pairs

    def _plan(self, epoch: int, window: int) -> list[Indices]:
        blocks = self._windows[window]
        numbers, lengths = self._store.numbers(blocks), self._lengths(blocks)
        batches = plan_epoch(*lengths, self._batch_tokens, self._seed, epoch, window)
        return [numbers[batch] for batch in batches]

    def _size(self, window: Sequence[int]) -> int:
        source, target = self._lengths(window)
        check_lengths(source, target, self._batch_tokens, self._store.numbers(window))
        return len(cuts(source, target, self._batch_tokens))

    def _lengths(self, window: Sequence[int]) -> tuple[Lengths, Lengths]:
        source, target = self._store.lengths(window)
        if self._few_shapes:
            return few_lengths(source, target, self._batch_tokens)
        return source, target


def plan_epoch(
    source: Lengths, target: Lengths, batch_tokens: int, seed: int, epoch: int, window: int = 0
) -> list[Indices]:
    """The batches of one epoch over pairs of these lengths; every pair is in exactly one.

    Pairs of like lengths go together, so rows x (longest side + end mark) <= batch_tokens with
    little padding. Which of equally long pairs meet, and the order of batches, is drawn anew in
    every epoch.
    """
    random = np.random.default_rng([seed, epoch, window])
    drawn = random.permutation(len(source))
    order = drawn[longest_first(source[drawn], target[drawn])]
    batches = split_at(order, cuts(source, target, batch_tokens))
    return [batches[i] for i in random.permutation(len(batches))]


def longest_first(source: Lengths, target: Lengths) -> Indices:
    """The pairs from long to short, neighbours being of like length on both sides.

    The longest side counts first, then the difference of the sides, which rises and falls in
    turn: a batch across two lengths then meets like differences on both sides of the border.
    """
    longest = np.maximum(source, target).astype(np.int64)
    difference = source - target
    # Differences lie in -longest..longest, so these numbers are distinct, without gaps.
    place = longest * (longest + 1) + np.where(longest % 2 == 0, difference, -difference)
    if place.max(initial=0) < 1 << 16:
        place = place.astype(np.uint16)  # numpy's stable sort of 16 bits is many times faster
    return np.argsort(place, kind="stable")[::-1]


def cuts(source: Lengths, target: Lengths, batch_tokens: int) -> Indices:
    """Where batches begin among the pairs from long to short, as `longest_first` puts them.

    A batch takes as many rows as its first pair, the longest, allows. So the number of rows
    follows from the length, and all batches but the last are full.
    """
    counts = np.bincount(np.maximum(source, target) + 1)  # by width, end mark included
    starts = [np.zeros(0, np.int64)]
    begin = end = 0
    for width in np.flatnonzero(counts)[::-1]:
        end += int(counts[width])
        rows = batch_tokens // int(width)
        starts.append(np.arange(begin, end, rows, dtype=np.int64))
        begin += len(starts[-1]) * rows
    return np.concatenate(starts)


def split_at(order: Indices, starts: Indices) -> list[Indices]:
    """`order` in parts that begin at `starts`."""
    bounds = [*starts.tolist(), len(order)]
    return [order[begin:end] for begin, end in pairwise(bounds)]


def check_lengths(source: Lengths, target: Lengths, batch_tokens: int, numbers: Indices) -> None:
    """Refuse a pair that no batch can hold, by its number."""
    width = np.maximum(source, target) + 1
    if width.max(initial=0) > batch_tokens:
        raise InputError(
            f"Pair {numbers[width.argmax()] + 1} has {width.max():,} tokens on one side, end mark "
            f"included, but a batch holds train.batch_tokens = {batch_tokens:,}; raise it or lower "
            "data.max_length."
        )


def few_lengths(source: Lengths, target: Lengths, batch_tokens: int) -> tuple[Lengths, Lengths]:
    """Lengths stretched so that full batches have few shapes (rows, S, T).

    Either side, with its end mark, becomes one of a short list of widths, the shorter side at
    most one step narrower than the longer; rows follow from the longer: three shapes to a width.
    Stretching preserves order: the longest of stretched lengths is the longest, stretched.
    """
    steps = [np.searchsorted(_STEPS, side + 1) for side in (source, target)]
    least = np.maximum(*steps) - 1
    widths = (np.minimum(_STEPS[np.maximum(step, least)], batch_tokens) for step in steps)
    stretched = [
        np.maximum(width - 1, side).astype(np.int32)  # beyond the budget a length stays as it is
        for width, side in zip(widths, (source, target), strict=True)
    ]
    return stretched[0], stretched[1]
