"""Ragged arrays of token ids: all ids in one flat array, and the length of each row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.integer[Any]]
Lengths = NDArray[np.int32]  # (rows,), without end marks
Mask = NDArray[np.bool_]


def id_type(vocab_size: int) -> type[np.integer[Any]]:
    """The smallest type that holds every id: two bytes where the vocabulary allows it."""
    return np.uint16 if vocab_size <= 1 << 16 else np.int32


@dataclass(frozen=True)
class Ragged:
    """One side of some pairs, as a ragged array: `ids` (tokens,) and `lengths` (rows,)."""

    ids: Tokens
    lengths: Lengths

    @classmethod
    def from_bytes(cls, rows: Sequence[bytes], kind: type[np.integer[Any]]) -> Self:
        """From rows given as the bytes of their ids."""
        sizes = np.fromiter(map(len, rows), np.int32, len(rows))
        return cls(np.frombuffer(b"".join(rows), kind), sizes // np.dtype(kind).itemsize)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def offsets(self) -> Lengths:
        """(rows + 1,): row i is the ids from offset i to offset i + 1."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int32)

    def where(self, kept: Mask) -> "Ragged":
        """The rows for which `kept` (rows,) is true."""
        return Ragged(self.ids[np.repeat(kept, self.lengths)], self.lengths[kept])

    def truncate(self, limit: int) -> "Ragged":
        """The first `limit` ids of every row."""
        within = np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], self.lengths)
        return Ragged(self.ids[within < limit], np.minimum(self.lengths, np.int32(limit)))
