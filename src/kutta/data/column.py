"""Rows of ids without a Python object for each: all ids one after the other, and the lengths."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.integer[Any]]
Lengths = NDArray[np.int32]  # (rows,), without end marks
Mask = NDArray[np.bool_]


def id_type(vocab_size: int) -> type[np.integer[Any]]:
    """The smallest number that holds every id: two bytes where the vocabulary allows it."""
    return np.uint16 if vocab_size <= 1 << 16 else np.int32


@dataclass(frozen=True)
class Column:
    """One side of some pairs: `ids` (tokens,) and `lengths` (rows,)."""

    ids: Tokens
    lengths: Lengths

    @classmethod
    def from_bytes(cls, rows: Sequence[bytes], kind: type[np.integer[Any]]) -> Self:
        """Of rows that are ids in memory already, one after the other."""
        sizes = np.fromiter(map(len, rows), np.int32, len(rows))
        return cls(np.frombuffer(b"".join(rows), kind), sizes // np.dtype(kind).itemsize)

    @classmethod
    def join(cls, columns: Iterable["Column"]) -> "Column":
        """The rows of one column after those of another."""
        parts = list(columns)
        if len(parts) == 1:
            return parts[0]
        ids, lengths = ([getattr(part, name) for part in parts] for name in ("ids", "lengths"))
        return Column(np.concatenate(ids), np.concatenate(lengths))

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Tokens]:
        return iter(np.split(self.ids, np.cumsum(self.lengths)[:-1]) if len(self) else ())

    @property
    def offsets(self) -> Lengths:
        """(rows + 1,): row i has the ids from offset i to offset i + 1."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int32)

    def split(self, row: int) -> tuple["Column", "Column"]:
        """The rows before this one, and the others."""
        token = int(self.lengths[:row].sum())
        first = Column(self.ids[:token], self.lengths[:row])
        return first, Column(self.ids[token:], self.lengths[row:])

    def where(self, kept: Mask) -> "Column":
        """The rows of which `kept` (rows,) is true."""
        return Column(self.ids[np.repeat(kept, self.lengths)], self.lengths[kept])

    def cut(self, limit: int) -> "Column":
        """The first `limit` ids of every row."""
        within = np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], self.lengths)
        return Column(self.ids[within < limit], np.minimum(self.lengths, np.int32(limit)))
