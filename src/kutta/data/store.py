"""The memory-mapped token store: encoded pairs in one Arrow file, opened without being read."""

import mmap
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from kutta.data.column import Column, Lengths, Tokens, id_type
from kutta.errors import InputError
from kutta.files import atomic_path

ROWS = 65_536  # pairs in a record batch; all but the last are full, so row i is found by division
_AT_ONCE = 64  # pairs gathered before their pages are given back
_MARK = {b"kutta": b"token store 1"}
_SIDES = ("source", "target")
_ANEW = "make it anew with kutta prepare CONFIG --overwrite"

Chunk = tuple[Column, Column]  # some pairs: source and target
arrow: Any = pa  # pyarrow ships no types; it is used in this file only


def write_chunks(path: Path, chunks: Iterable[Chunk], vocab_size: int) -> int:
    """Write encoded pairs as they come, in flat memory and atomically; return how many.

    Ids take two bytes where `vocab_size` (of the larger side) allows it, else four.
    """
    item = arrow.list_(arrow.from_numpy_dtype(id_type(vocab_size)))
    schema = arrow.schema([(side, item) for side in _SIDES], metadata=_MARK)
    written = 0
    with (
        atomic_path(path) as temporary,
        arrow.OSFile(str(temporary), "wb") as sink,
        arrow.ipc.new_file(sink, schema) as writer,
    ):
        for columns in _records(chunks):
            writer.write_batch(arrow.record_batch([*map(_list_array, columns)], schema=schema))
            written += len(columns[0])
    return written


class Store:
    """Encoded pairs by number, in blocks of ROWS. All stays on disk until it is asked for."""

    def __init__(self, mapped: mmap.mmap, batches: Sequence[Any]) -> None:
        self._mapped = mapped
        self._columns = [[_views(batch.column(side)) for batch in batches] for side in range(2)]
        self._pairs = sum(batch.num_rows for batch in batches)
        self._release()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map the file into memory; time and memory go by its number of blocks, not its pairs."""
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise InputError(f"Cannot read {path}: {error.strerror or error}; {_ANEW}.") from error
        except ValueError as error:  # an empty file cannot be mapped
            raise _foreign(path) from error
        try:
            reader = arrow.ipc.open_file(arrow.py_buffer(mapped))
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        except (OSError, arrow.ArrowInvalid) as error:
            raise _foreign(path) from error
        full = all(batch.num_rows == ROWS for batch in batches[:-1])
        if reader.schema.metadata != _MARK or not full:
            raise _foreign(path)
        return cls(mapped, batches)

    def __len__(self) -> int:
        return self._pairs

    @property
    def blocks(self) -> int:
        return len(self._columns[0])

    def lengths(self, blocks: Sequence[int] | None = None) -> tuple[Lengths, Lengths]:
        """The source and the target lengths of the pairs in some blocks, or in all."""
        chosen = range(self.blocks) if blocks is None else blocks
        source, target = (
            np.concatenate([np.diff(column[i][1]) for i in chosen] or [np.zeros(0, np.int32)])
            for column in self._columns
        )
        self._release()
        return source, target

    def numbers(self, blocks: Sequence[int]) -> NDArray[np.int64]:
        """The numbers (pairs,) of the pairs in these blocks, in the order of their lengths."""
        rows = (np.arange(block * ROWS, min((block + 1) * ROWS, len(self))) for block in blocks)
        return np.concatenate([np.zeros(0, np.int64), *rows])

    def __getitem__(self, index: int) -> tuple[Tokens, Tokens]:
        """The tokens of pair `index`: source (S,), target (T,)."""
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of a store of {len(self)}")
        block, row = divmod(index, ROWS)
        source, target = (_row(column[block], row) for column in self._columns)
        return source, target

    def gather(self, indices: Sequence[int] | NDArray[np.int64]) -> list[tuple[Tokens, Tokens]]:
        """Copies of the pairs of these numbers, in this order."""
        pairs: list[tuple[Tokens, Tokens]] = []
        for start in range(0, len(indices), _AT_ONCE):
            chosen = (self[int(index)] for index in indices[start : start + _AT_ONCE])
            pairs += [(source.copy(), target.copy()) for source, target in chosen]
            self._release()
        return pairs

    def _release(self) -> None:
        """Unmap what was read: with every pair, many neighbours on disk came into our memory.

        They stay in the system's cache, but no longer count as ours; without this a training
        would soon hold the whole file.
        """
        if sys.platform != "win32":
            self._mapped.madvise(mmap.MADV_DONTNEED)


def _records(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same rows in chunks of ROWS; the last one is as it comes."""
    waiting: list[Chunk] = []
    count = 0
    for chunk in chunks:
        waiting.append(chunk)
        count += len(chunk[0])
        while count >= ROWS:
            source, target = (Column.join(side).split(ROWS) for side in zip(*waiting, strict=True))
            yield source[0], target[0]
            waiting, count = [(source[1], target[1])], count - ROWS
    if count:
        source, target = map(Column.join, zip(*waiting, strict=True))
        yield source, target


def _list_array(column: Column) -> Any:
    if len(column.ids) >= 1 << 31:  # offsets have 32 bits
        raise InputError(
            f"{len(column):,} rows in a row have more than 2 billion tokens; lower data.max_length."
        )
    return arrow.ListArray.from_arrays(column.offsets, arrow.array(column.ids))


def _views(column: Any) -> tuple[Tokens, NDArray[np.int32]]:
    """The flat tokens of a list column and its row offsets, both as they lie on disk."""
    tokens, offsets = column.values.to_numpy(), column.offsets.to_numpy()
    return cast(Tokens, tokens), cast(NDArray[np.int32], offsets)


def _row(views: tuple[Tokens, NDArray[np.int32]], row: int) -> Tokens:
    tokens, offsets = views
    return tokens[offsets[row] : offsets[row + 1]]


def _foreign(path: Path) -> InputError:
    return InputError(f"{path} is cut short or not a token store of Kutta; {_ANEW}.")
