"""Padded batches: seeded, addressed by number and therefore resumable; each pair once per epoch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from kutta.data.plan import (
    BatchPlan,
    Indices,
    Lengths,
    check_lengths,
    cuts,
    few_lengths,
    longest_first,
    split_at,
)
from kutta.data.store import Store
from kutta.data.tokenizer import BOS, EOS, PAD, Ids, Pair
from kutta.errors import InputError

# Re-segments the pairs of a micro-batch (BPE-dropout), as a pure function of pairs and seed.
Resample = Callable[[Sequence[Pair], int], Sequence[Pair]]


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
        source, target_in, target_out = (
            tensor.to(device, non_blocking=True)
            for tensor in (self.source, self.target_in, self.target_out)
        )
        return type(self)(source, target_in, target_out, self.tokens)


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
        source=_pad(sides[0], source, after=EOS),
        target_in=_pad(sides[1], target, before=BOS),
        target_out=_pad(sides[1], target, after=EOS),
        tokens=sum(map(len, sides[1])) + len(pairs),
    )


class Pairs(Protocol):
    """Encoded pairs by number, whose lengths are known without reading them: a Store."""

    def lengths(self) -> tuple[Lengths, Lengths]: ...
    def gather(self, indices: Indices) -> Sequence[Pair]: ...


class PairList:
    """Encoded pairs in memory, for text without a store, such as a test set."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = pairs

    def lengths(self) -> tuple[Lengths, Lengths]:
        source, target = (
            np.array([len(pair[side]) for pair in self._pairs], np.int32) for side in range(2)
        )
        return source, target

    def gather(self, indices: Indices) -> Sequence[Pair]:
        return [self._pairs[int(index)] for index in indices]


class BatchStream:
    """An endless stream of micro-batches over all epochs, addressed by number.

    Micro-batch n depends only on the store, the batch size, the seed and n: resuming needs
    nothing but n, and ranks share an update by taking different numbers. With `few_shapes`
    batches are padded to few shapes, for code that is compiled for each of them.
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
        self._store, self._seed, self._resample = store, seed, resample
        self._plan = BatchPlan(store, batch_tokens, seed, few_shapes)
        self._stretch_within = batch_tokens if few_shapes else None

    @property
    def batches_per_epoch(self) -> int:
        return self._plan.batches_per_epoch

    def epoch_of(self, number: int) -> tuple[int, int]:
        """The epoch of micro-batch `number`, and its index within that epoch."""
        return divmod(number, self.batches_per_epoch)

    def indices(self, number: int) -> Indices:
        """The numbers of the pairs in micro-batch `number`."""
        return self._plan.indices(number)

    def take(self, number: int) -> Batch:
        """Micro-batch `number`, counted from the start of training."""
        return self._read(self.indices(number), number)

    def largest(self) -> Batch:
        """A batch that needs as much memory as any other in the stream, to be tried first."""
        return self._read(self._plan.largest(), 0)

    def _read(self, indices: Indices, number: int) -> Batch:
        pairs: Sequence[Pair] = self._store.gather(indices)
        if self._resample is not None:
            pairs = self._resample(pairs, _seed_of(self._seed, number))
        return collate(pairs, self._stretch_within)


def batches_in_order(store: Pairs, batch_tokens: int) -> Iterator[tuple[Indices, Batch]]:
    """Every pair of the store once, from long to short, with its number: for validation."""
    source, target = store.lengths()
    check_lengths(source, target, batch_tokens, np.arange(len(source)))
    starts = cuts(source, target, batch_tokens)
    for indices in split_at(longest_first(source, target), starts):
        yield indices, collate(store.gather(indices))


def _seed_of(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _pad(
    rows: Sequence[Ids], width: int, before: int | None = None, after: int | None = None
) -> Tensor:
    """Rows of ids as one (B, width) tensor, with `before` and `after` marks, padded with PAD."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    first = int(before is not None)
    padded = np.full((len(rows), width), PAD, np.int64)
    column = np.arange(width)
    inside = (column >= first) & (column < first + lengths[:, None])
    # "unsafe" because numpy takes an empty list for a list of floats.
    padded[inside] = np.concatenate(rows, dtype=np.int64, casting="unsafe")
    if before is not None:
        padded[:, 0] = before
    if after is not None:
        padded[np.arange(len(rows)), first + lengths] = after
    return torch.from_numpy(padded)  # pyright: ignore[reportUnknownMemberType]
