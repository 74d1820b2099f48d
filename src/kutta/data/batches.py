"""Padded batches: seeded, addressed by number and therefore resumable; each pair once per epoch.

Which pairs form a batch is a pure function of lengths, seed and number: they are sorted from long
to short by both lengths and cut where a batch is full.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kutta.data.ragged import Lengths
from kutta.data.store import Store
from kutta.data.tokenizer import BOS, EOS, PAD, Ids, Pair
from kutta.errors import InputError

WINDOW = 32  # row groups of a store that are planned together: two million pairs
# Widths for batches of few shapes: three to an octave, all multiples of 4, from 32 on of 8.
_OCTAVES = (1 << power for power in range(4, 30))
_STEPS = np.array([8, 12, *(octave * part // 4 for octave in _OCTAVES for part in (4, 5, 6))])

Indices = NDArray[np.int64]
# Re-segments the pairs of a micro-batch (BPE-dropout), as a pure function of pairs and seed.
Resample = Callable[[Sequence[Pair], int], Sequence[Pair]]
Pairs = Store | Sequence[Pair]  # the latter for text without a store, such as a test set


@dataclass(frozen=True)
class Batch:
    """Padded ids, int64.

    source (B, S) = tokens + EOS; target_in (B, T) = BOS + tokens; target_out (B, T) = tokens + EOS.
    """

    source: Tensor
    target_in: Tensor
    target_out: Tensor
    tokens: int

    def to(self, device: torch.device | str) -> Self:
        tensors = (self.source, self.target_in, self.target_out)
        return type(self)(*(t.to(device, non_blocking=True) for t in tensors), tokens=self.tokens)


def collate(pairs: Sequence[Pair], stretch_within: int | None = None) -> Batch:
    """Pad encoded pairs into one Batch, in the given order.

    With `stretch_within` a number of tokens, the batch has one of few shapes (see `few_lengths`).
    """
    sides = [[pair[side] for pair in pairs] for side in range(2)]
    longest = [np.array(max(map(len, side)), np.int32) for side in sides]
    if stretch_within is not None:
        longest = few_lengths(longest[0], longest[1], stretch_within)
    source, target = (int(length) + 1 for length in longest)
    return Batch(
        source=_pad(sides[0], source, first=0),
        target_in=_pad(sides[1], target, first=1),
        target_out=_pad(sides[1], target, first=0),
        tokens=sum(map(len, sides[1])) + len(pairs),
    )


class BatchStream:
    """An endless stream of micro-batches over all epochs, addressed by number.

    Micro-batch n depends only on the store, the batch size, the seed and n: resuming needs
    nothing but n, and ranks share an update by taking different numbers. With `few_shapes`
    batches are padded to few shapes, for code that is compiled for each of them.

    An epoch visits the windows of the store in random order. A window has the same number of
    batches in every epoch, because its sorted lengths are the same: epoch, window and batch follow
    from the number by arithmetic. Only the current window is planned, so memory does not grow with
    the store.
    """

    def __init__(
        self,
        store: Store,
        batch_tokens: int,
        seed: int,
        resample: Resample | None = None,
        few_shapes: bool = False,
    ) -> None:
        if not len(store):
            raise InputError("The store of training pairs is empty; prepare the data again.")
        self._store, self._batch_tokens, self._seed = store, batch_tokens, seed
        self._resample, self._few_shapes = resample, few_shapes
        count = -(-store.row_groups // WINDOW)
        # Every count-th row group, so that a window covers the whole corpus.
        self._windows = [range(first, store.row_groups, count) for first in range(count)]
        self._sizes = np.array([self._size(window) for window in self._windows])
        self.batches_per_epoch = int(self._sizes.sum())
        self._planned: tuple[int, int] | None = None
        self._batches: list[Indices] = []

    def epoch_of(self, number: int) -> tuple[int, int]:
        """The epoch of micro-batch `number`, and its index within that epoch."""
        return divmod(number, self.batches_per_epoch)

    def take(self, number: int) -> Batch:
        """Micro-batch `number`, counted from the start of training."""
        return self._read(self.indices(number), number)

    def indices(self, number: int) -> Indices:
        """The numbers of the pairs in micro-batch `number`."""
        epoch, index = self.epoch_of(number)
        count = len(self._windows)
        visits = np.random.default_rng([self._seed, epoch, count]).permutation(count)
        ends = self._sizes[visits].cumsum()
        turn = int(np.searchsorted(ends, index, side="right"))
        window = int(visits[turn])
        if self._planned != (epoch, window):
            self._batches = []  # free the previous window first
            groups = self._windows[window]
            numbers, lengths = self._store.numbers(groups), self._lengths(groups)
            planned = plan_epoch(*lengths, self._batch_tokens, self._seed, epoch, window)
            self._batches = [numbers[batch] for batch in planned]
            self._planned = epoch, window
        return self._batches[index - int(ends[turn])]  # counted from the end of the window

    def largest(self) -> Batch:
        """The batch with most cells, rows x (S + T); of equals, the longest. To be tried first."""
        best, pairs = (0, 0), np.zeros(0, np.int64)
        for window in self._windows:
            source, target = self._lengths(window)
            for batch in by_length(source, target, self._batch_tokens):
                widths = int(source[batch].max()) + 1, int(target[batch].max()) + 1
                if (size := (len(batch) * sum(widths), max(widths))) > best:
                    best, pairs = size, self._store.numbers(window)[batch]
        return self._read(pairs, 0)

    def _size(self, window: Sequence[int]) -> int:
        source, target = self._lengths(window)
        check_lengths(source, target, self._batch_tokens, self._store.numbers(window))
        return len(cuts(source, target, self._batch_tokens))

    def _lengths(self, window: Sequence[int]) -> tuple[Lengths, Lengths]:
        lengths = self._store.lengths(window)
        return few_lengths(*lengths, self._batch_tokens) if self._few_shapes else lengths

    def _read(self, indices: Indices, number: int) -> Batch:
        pairs: Sequence[Pair] = self._store.gather(indices)
        if self._resample is not None:
            seed = np.random.SeedSequence([self._seed, number]).generate_state(1)[0]
            pairs = self._resample(pairs, int(seed))
        return collate(pairs, self._batch_tokens if self._few_shapes else None)


def batches_in_order(pairs: Pairs, batch_tokens: int) -> Iterator[tuple[Indices, Batch]]:
    """Every pair once, from long to short, with its number: for validation."""
    if isinstance(pairs, Store):
        source, target = pairs.lengths()
    else:
        source, target = np.array([[*map(len, pair)] for pair in pairs], np.int32).reshape(-1, 2).T
    check_lengths(source, target, batch_tokens, np.arange(len(source)))
    for indices in by_length(source, target, batch_tokens):
        rows: list[int] = indices.tolist()
        chosen = pairs.gather(rows) if isinstance(pairs, Store) else [pairs[i] for i in rows]
        yield indices, collate(chosen)


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
    batches = by_length(source[drawn], target[drawn], batch_tokens)
    return [drawn[batches[i]] for i in random.permutation(len(batches))]


def by_length(source: Lengths, target: Lengths, batch_tokens: int) -> list[Indices]:
    """The batches of pairs of these lengths, from long to short; every pair is in exactly one."""
    order = longest_first(source, target)
    bounds = [*cuts(source, target, batch_tokens).tolist(), len(order)]
    return [order[begin:end] for begin, end in pairwise(bounds)]


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
    least = np.searchsorted(_STEPS, np.maximum(source, target) + 1) - 1

    def stretched(side: Lengths) -> Lengths:
        step = np.maximum(np.searchsorted(_STEPS, side + 1), least)
        width = np.minimum(_STEPS[step], batch_tokens)
        return np.maximum(width - 1, side).astype(np.int32)  # beyond the budget unchanged

    return stretched(source), stretched(target)


def _pad(rows: Sequence[Ids], width: int, first: int) -> Tensor:
    """Rows of ids from column `first` on, (B, width): after BOS (1), or before EOS (0)."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    column = np.arange(width)
    inside = (column >= first) & (column < first + lengths[:, None])
    padded = np.full(inside.shape, PAD, np.int64)
    # "unsafe" because numpy takes an empty list for a list of floats.
    padded[inside] = np.concatenate(rows, dtype=np.int64, casting="unsafe")
    mark = (slice(None), 0) if first else (np.arange(len(rows)), lengths)
    padded[mark] = BOS if first else EOS
    return torch.from_numpy(padded)  # pyright: ignore[reportUnknownMemberType]
