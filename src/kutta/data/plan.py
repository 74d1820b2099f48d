"""Which pairs form which micro-batch: a pure function of lengths, seed and number.

Pairs are sorted from long to short by both lengths and cut where a batch is full. A large store is
planned one window at a time, so memory does not grow with its size.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kutta.data.ragged import Lengths
from kutta.errors import InputError

Indices = NDArray[np.int64]

WINDOW = 32  # row groups of a store that are planned together: two million pairs
# Widths for batches of few shapes: three to an octave, all multiples of 4, from 32 on of 8.
_OCTAVES = (1 << power for power in range(4, 30))
_STEPS = np.array([8, 12, *(octave * part // 4 for octave in _OCTAVES for part in (4, 5, 6))])


class RowGroups(Protocol):
    """Pairs in numbered row groups, whose lengths are known without reading them: a Store."""

    @property
    def row_groups(self) -> int: ...
    def lengths(self, groups: Sequence[int]) -> tuple[Lengths, Lengths]: ...
    def numbers(self, groups: Sequence[int]) -> Indices: ...


class BatchPlan:
    """The micro-batches of all epochs, by number.

    An epoch visits the windows of the store in random order. A window has the same number of
    batches in every epoch, because its sorted lengths are the same: epoch, window and batch follow
    from the number by arithmetic, and only the current window is planned.
    """

    def __init__(self, store: RowGroups, batch_tokens: int, seed: int, few_shapes: bool) -> None:
        self._store, self._batch_tokens, self._seed = store, batch_tokens, seed
        self._few_shapes = few_shapes
        count = -(-store.row_groups // WINDOW)
        # Every count-th row group, so that a window covers the whole corpus.
        self._windows = [range(first, store.row_groups, count) for first in range(count)]
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
            self._batches = []  # free the previous window first
            self._batches = self._plan(epoch, window)
            self._planned = epoch, window
        return self._batches[index - int(ends[turn])]  # counted from the end of the window

    def largest(self) -> Indices:
        """The pairs of the batch with most cells, rows x (S + T); of equals, the longest."""
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
        groups = self._windows[window]
        numbers, lengths = self._store.numbers(groups), self._lengths(groups)
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

    Pairs of similar lengths are batched together, so rows x (longest side + end mark) <=
    batch_tokens with little padding. Pairs of equal lengths and the order of batches are shuffled
    in every epoch.
    """
    random = np.random.default_rng([seed, epoch, window])
    drawn = random.permutation(len(source))
    order = drawn[longest_first(source[drawn], target[drawn])]
    batches = split_at(order, cuts(source, target, batch_tokens))
    return [batches[i] for i in random.permutation(len(batches))]


def longest_first(source: Lengths, target: Lengths) -> Indices:
    """The pairs from long to short, with similar lengths on both sides next to each other.

    They are sorted by the longest side, then by the difference of the sides, alternately ascending
    and descending: a batch across two lengths then has similar differences in both.
    """
    longest = np.maximum(source, target).astype(np.int64)
    difference = source - target
    # Differences lie in -longest..longest, so these numbers are distinct, without gaps.
    place = longest * (longest + 1) + np.where(longest % 2 == 0, difference, -difference)
    if place.max(initial=0) < 1 << 16:
        place = place.astype(np.uint16)  # numpy's stable sort of 16 bits is many times faster
    return np.argsort(place, kind="stable")[::-1]


def cuts(source: Lengths, target: Lengths, batch_tokens: int) -> Indices:
    """Where batches start among the pairs sorted by `longest_first`.

    A batch has as many rows as its first and longest pair allows. So the number of rows follows
    from the length, and all batches but the last are full.
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
    """`order` split at `starts`."""
    bounds = [*starts.tolist(), len(order)]
    return [order[begin:end] for begin, end in pairwise(bounds)]


def check_lengths(source: Lengths, target: Lengths, batch_tokens: int, numbers: Indices) -> None:
    """Reject a pair that does not fit into any batch, by its number."""
    width = np.maximum(source, target) + 1
    if width.max(initial=0) > batch_tokens:
        raise InputError(
            f"Pair {numbers[width.argmax()] + 1} has {width.max():,} tokens on one side, end mark "
            f"included, but a batch holds train.batch_tokens = {batch_tokens:,}; raise it or lower "
            "data.max_length."
        )


def few_lengths(source: Lengths, target: Lengths, batch_tokens: int) -> tuple[Lengths, Lengths]:
    """Lengths rounded up so that full batches have few shapes (rows, S, T).

    Each side, with its end mark, gets one of a short list of widths, the shorter side at most one
    step narrower than the longer. Rows follow from the longer one: three shapes per width.
    Rounding is monotonic: the longest rounded length is the rounded longest length.
    """
    steps = [np.searchsorted(_STEPS, side + 1) for side in (source, target)]
    least = np.maximum(*steps) - 1
    widths = (np.minimum(_STEPS[np.maximum(step, least)], batch_tokens) for step in steps)
    stretched = [
        np.maximum(width - 1, side).astype(np.int32)  # lengths beyond the budget are unchanged
        for width, side in zip(widths, (source, target), strict=True)
    ]
    return stretched[0], stretched[1]
