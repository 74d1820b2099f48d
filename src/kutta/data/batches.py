"""Token-bucketed batches: seeded, each pair once per epoch, sharded by rank, resumable."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kutta.data.store import Store
from kutta.data.tokenizer import BOS, EOS, PAD, Ids, Pair
from kutta.errors import InputError

Indices = NDArray[np.int64]
# Splits the pairs of a micro-batch anew (BPE-dropout), as a pure function of pairs and seed.
Resample = Callable[[Sequence[Pair], int], Sequence[Pair]]


@dataclass(frozen=True)
class Batch:
    """Padded ids on their way to the model, int64.

    source (B, S) = tokens + EOS; target_in (B, T) = BOS + tokens; target_out (B, T) = tokens + EOS.
    """

    source: Tensor
    target_in: Tensor
    target_out: Tensor
    tokens: int

    def to(self, device: torch.device | str) -> Self:
        source, target_in, target_out = (
            tensor.to(device, non_blocking=True)
            for tensor in (self.source, self.target_in, self.target_out)
        )
        return type(self)(source, target_in, target_out, self.tokens)


def collate(pairs: Sequence[Pair]) -> Batch:
    """Pad encoded pairs into one Batch, row by row in the order given."""
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    return Batch(
        source=_pad(sources, after=EOS),
        target_in=_pad(targets, before=BOS),
        target_out=_pad(targets, after=EOS),
        tokens=sum(map(len, targets)) + len(targets),
    )


def plan_epoch(
    source_lengths: NDArray[np.int32],
    target_lengths: NDArray[np.int32],
    batch_tokens: int,
    seed: int,
    epoch: int,
) -> list[Indices]:
    """The batches of one epoch as arrays of pair numbers; every pair is in exactly one.

    Pairs of like lengths go together, so rows x (longest side + end mark) <= batch_tokens with
    little padding. Which of equally long pairs meet, and the order of batches, is drawn anew in
    every epoch; the number of batches is always the same, because the sorted lengths are.
    """
    random = np.random.default_rng([seed, epoch])
    order = _by_length(source_lengths, target_lengths, random.permutation(len(source_lengths)))
    batches = _cut(order, source_lengths, target_lengths, batch_tokens)
    return [batches[i] for i in random.permutation(len(batches))]


class Pairs(Protocol):
    """Encoded pairs by number, with their lengths (pairs,) known without reading them: a Store."""

    source_lengths: NDArray[np.int32]
    target_lengths: NDArray[np.int32]

    def gather(self, indices: Indices) -> Sequence[Pair]: ...


class PairList:
    """Encoded pairs in memory, for texts that were not prepared, such as a test set."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = pairs
        self.source_lengths = np.array([len(source) for source, _ in pairs], np.int32)
        self.target_lengths = np.array([len(target) for _, target in pairs], np.int32)

    def gather(self, indices: Indices) -> Sequence[Pair]:
        return [self._pairs[int(index)] for index in indices]


class BatchStream:
    """One endless stream of micro-batches over all epochs, addressed by number.

    Micro-batch n depends on the store, the batch size, the seed and n alone: resuming is
    knowing n, and rank r of w takes the numbers n with n % w == r.
    """

    def __init__(
        self,
        store: Store,
        batch_tokens: int,
        seed: int,
        position: int = 0,
        resample: Resample | None = None,
    ) -> None:
        if not len(store):
            raise InputError("The store of training pairs is empty; prepare the data again.")
        self.position = position
        self._store, self._batch_tokens, self._seed = store, batch_tokens, seed
        self._resample = resample
        self._epoch: int = 0
        self._plan: list[Indices] = self._plan_of(0)

    @property
    def batches_per_epoch(self) -> int:
        return len(self._plan)

    def epoch_of(self, number: int) -> tuple[int, int]:
        """The epoch of micro-batch `number`, and its index within that epoch."""
        return divmod(number, self.batches_per_epoch)

    def indices(self, number: int) -> Indices:
        """The numbers of the pairs in micro-batch `number`."""
        epoch, index = self.epoch_of(number)
        if epoch != self._epoch:
            self._epoch, self._plan = epoch, self._plan_of(epoch)
        return self._plan[index]

    def take(self, number: int) -> Batch:
        """Micro-batch `number`, counted from the beginning of training."""
        pairs: Sequence[Pair] = self._store.gather(self.indices(number))
        if self._resample is not None:
            pairs = self._resample(pairs, _seed_of(self._seed, number))
        return collate(pairs)

    def shard(self, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """The endless share of one rank, from `position` on."""
        return (self.take(n) for n in count(self.position + (rank - self.position) % world, world))

    def _plan_of(self, epoch: int) -> list[Indices]:
        store = self._store
        return plan_epoch(
            store.source_lengths, store.target_lengths, self._batch_tokens, self._seed, epoch
        )


def batches_in_order(store: Pairs, batch_tokens: int) -> Iterator[tuple[Indices, Batch]]:
    """Every pair of the store once, sorted by length, with its numbers: for validation."""
    lengths = store.source_lengths, store.target_lengths
    order = _by_length(*lengths, np.arange(len(lengths[0])))
    for indices in _cut(order, *lengths, batch_tokens):
        yield indices, collate(store.gather(indices))


def _seed_of(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _by_length(
    source_lengths: NDArray[np.int32], target_lengths: NDArray[np.int32], order: Indices
) -> Indices:
    """`order` sorted by target, then source length; ties stay as they are.

    Source lengths rise and fall in turn from one target length to the next, so that a batch
    across the border of two target lengths meets sources of like length on both sides.
    """
    source, target = source_lengths[order], target_lengths[order]
    second = np.where(target % 2 == 0, source, source.max(initial=0) - source)
    order, target = _sorted_by(second, order, target)
    return _sorted_by(target, order)[0]


def _sorted_by(key: NDArray[Any], *arrays: NDArray[Any]) -> list[NDArray[Any]]:
    # On 16 bits numpy's stable sort is a radix sort, many times faster on millions of pairs.
    if key.max(initial=0) < 1 << 16:
        key = key.astype(np.uint16)
    by = np.argsort(key, kind="stable")
    return [array[by] for array in arrays]


def _cut(
    order: Indices,
    source_lengths: NDArray[np.int32],
    target_lengths: NDArray[np.int32],
    batch_tokens: int,
) -> list[Indices]:
    """Cut the sorted pairs into batches, each as many rows as the budget holds."""
    width = np.maximum(source_lengths, target_lengths)[order] + 1
    if len(width) and width.max() > batch_tokens:
        longest = order[width.argmax()]
        raise InputError(
            f"Pair {longest + 1} has {width.max():,} tokens on one side, end mark included, but a "
            f"batch holds train.batch_tokens = {batch_tokens:,}; raise it or lower data.max_length."
        )
    batches: list[Indices] = []
    start = 0
    while start < len(order):
        ahead = width[start : start + batch_tokens // int(width[start])]
        area = np.maximum.accumulate(ahead) * np.arange(1, len(ahead) + 1)
        stop = start + int(np.searchsorted(area, batch_tokens, side="right"))
        batches.append(order[start:stop])
        start = stop
    return batches


def _pad(rows: Sequence[Ids], before: int | None = None, after: int | None = None) -> Tensor:
    """Rows of ids as one (B, longest + marks) tensor, with marks around and PAD behind."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    first = int(before is not None)
    width = int(lengths.max(initial=0)) + first + int(after is not None)
    padded = np.full((len(rows), width), PAD, np.int64)
    column = np.arange(width)
    inside = (column >= first) & (column < first + lengths[:, None])
    padded[inside] = np.concatenate([np.asarray(row, np.int64) for row in rows])
    if before is not None:
        padded[:, 0] = before
    if after is not None:
        padded[np.arange(len(rows)), first + lengths] = after
    return torch.from_numpy(padded)  # pyright: ignore[reportUnknownMemberType]
