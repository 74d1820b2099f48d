"""The token store: encoded pairs in one memory-mapped Arrow file."""

import mmap
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from kutta.data.ragged import Lengths, Ragged, Tokens, id_type
from kutta.errors import InputError
from kutta.files import atomic_path
from kutta.integrity import Blocks

# Pairs in a row group (an Arrow record batch). All but the last are full, so that the row group of
# a pair is found by division.
ROWS = 65_536
_AT_ONCE = 64  # pairs gathered before their pages are released
_MARK = {b"kutta": b"token store 1"}
_SIDES = ("source", "target")
_REMEDY = "recreate it with kutta prepare CONFIG --overwrite"

PairChunk = tuple[Ragged, Ragged]  # some pairs: source and target
arrow: Any = pa  # pyarrow has no types; it is used in this file only


def write_chunks(path: Path, chunks: Iterable[PairChunk], vocab_size: int) -> int:
    """Write encoded pairs as they arrive, atomically and in constant memory; return their number.

    Ids take two bytes where `vocab_size` (of the larger side) allows it, else four.
    """
    item = arrow.list_(arrow.from_numpy_dtype(id_type(vocab_size)))
    schema = arrow.schema([(side, item) for side in _SIDES], metadata=_MARK)
    make, waiting, written = arrow.ListArray.from_arrays, schema.empty_table(), 0
    with (
        atomic_path(path) as temporary,
        arrow.OSFile(str(temporary), "wb") as sink,
        arrow.ipc.new_file(sink, schema) as writer,
    ):
        for sides in chunks:
            lists = [make(side.offsets, arrow.array(side.ids)) for side in sides]
            chunk = arrow.table(lists, schema=schema)
            waiting, written = arrow.concat_tables([waiting, chunk]), written + len(chunk)
            while len(waiting) >= ROWS:
                writer.write_table(_row_group(waiting.slice(0, ROWS)))
                waiting = waiting.slice(ROWS)
        writer.write_table(_row_group(waiting))
    return written


class Store:
    """Encoded pairs by number, in row groups of ROWS. Nothing is read until it is needed.

    With `blocks`, a row group is checked for damage when it is first read.
    """

    def __init__(self, mapped: mmap.mmap, batches: Sequence[Any], blocks: Blocks | None) -> None:
        self._mapped, self._blocks = mapped, blocks
        self._first = np.frombuffer(mapped, np.uint8).ctypes.data  # the address of the file
        # Of each side and row group: the flat tokens and the row offsets, without copying them.
        self._sides: list[list[tuple[Tokens, Lengths]]] = [
            [(rows.values.to_numpy(), rows.offsets.to_numpy()) for rows in columns]
            for columns in ([batch.column(side) for batch in batches] for side in _SIDES)
        ]
        self._pairs = sum(batch.num_rows for batch in batches)
        self._checked = bytearray(len(batches))
        self._check_between()
        self._release()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map the file into memory; time and memory depend on its number of row groups only."""
        foreign = InputError(f"{path} is truncated or not a Kutta token store; {_REMEDY}.")
        try:
            file = path.open("rb")
        except OSError as error:
            why = error.strerror or error
            raise InputError(f"Cannot read {path}: {why}; {_REMEDY}.") from error
        try:
            with file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            blocks = Blocks.of(path, len(mapped), _REMEDY)
            if blocks:  # its end lists the row groups
                blocks.check(memoryview(mapped), *_footer(mapped))
            reader = arrow.ipc.open_file(arrow.py_buffer(mapped))
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            full = all(batch.num_rows == ROWS for batch in batches[:-1])
            if reader.schema.metadata != _MARK or not full:
                raise foreign
            for batch in batches:
                batch.validate()
            return cls(mapped, batches, blocks)
        except (
            OSError,
            ValueError,
            KeyError,
            AttributeError,
            arrow.ArrowException,
        ) as error:  # of an empty file, or of Arrow
            raise foreign from error

    def __len__(self) -> int:
        return self._pairs

    @property
    def row_groups(self) -> int:
        return len(self._sides[0])

    def lengths(self, groups: Sequence[int] | None = None) -> tuple[Lengths, Lengths]:
        """The source and the target lengths of the pairs in some row groups, or in all."""
        chosen = range(self.row_groups) if groups is None else groups
        self._check(side[i][1] for side in self._sides for i in chosen)
        source, target = (
            np.concatenate([np.diff(side[i][1]) for i in chosen] or [np.zeros(0, np.int32)])
            for side in self._sides
        )
        self._release()
        return source, target

    def tokens(self, group: int) -> tuple[Tokens, Tokens]:
        """All source and all target tokens of a row group, without the ends of rows."""
        source, target = (tokens for tokens, _ in self._row_group(group))
        return source, target

    def numbers(self, groups: Sequence[int]) -> NDArray[np.int64]:
        """The numbers (pairs,) of the pairs in these row groups, in the order of `lengths`."""
        rows = (np.arange(group * ROWS, min((group + 1) * ROWS, len(self))) for group in groups)
        return np.concatenate([np.zeros(0, np.int64), *rows])

    def __getitem__(self, index: int) -> tuple[Tokens, Tokens]:
        """The tokens of pair `index`: source (S,), target (T,)."""
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of a store of {len(self)}")
        group, row = divmod(index, ROWS)
        views = self._row_group(group)
        source, target = (tokens[ends[row] : ends[row + 1]] for tokens, ends in views)
        return source, target

    def gather(self, indices: Sequence[int] | NDArray[np.int64]) -> list[tuple[Tokens, Tokens]]:
        """Copies of the pairs with these numbers, in this order."""
        pairs: list[tuple[Tokens, Tokens]] = []
        for start in range(0, len(indices), _AT_ONCE):
            chosen = (self[int(index)] for index in indices[start : start + _AT_ONCE])
            pairs += [(source.copy(), target.copy()) for source, target in chosen]
            self._release()
        return pairs

    def _row_group(self, group: int) -> list[tuple[Tokens, Lengths]]:
        """Tokens and row offsets of both sides of a row group, checked for damage."""
        views = [side[group] for side in self._sides]
        if not self._checked[group]:
            self._check(array for view in views for array in view)
            self._checked[group] = True
        return views

    def _check(self, arrays: Iterable[NDArray[Any]]) -> None:
        """Check the parts of the file that these arrays are in."""
        if self._blocks:
            data = memoryview(self._mapped)
            for array in arrays:
                start = array.ctypes.data - self._first
                if array.nbytes:
                    self._blocks.check(data, start, start + array.nbytes)

    def _check_between(self) -> None:
        """Check everything but the row groups: what Arrow says about them."""
        if self._blocks:
            views = (array for side in self._sides for view in side for array in view)
            starts = ((array.ctypes.data - self._first, array.nbytes) for array in views)
            begin, data = 0, memoryview(self._mapped)
            for start, size in sorted(place for place in starts if place[1]):
                self._blocks.check(data, begin, start)
                begin = max(begin, start + size)
            self._blocks.check(data, begin, len(data))

    def _release(self) -> None:
        """Release the pages that were read; each pair also maps its neighbours on disk.

        They stay in the page cache but no longer count as memory of this process; without this,
        training would soon hold the whole file.
        """
        if sys.platform != "win32":
            self._mapped.madvise(mmap.MADV_DONTNEED)


def _footer(mapped: mmap.mmap) -> tuple[int, int]:
    """Where the footer of an Arrow file may be: as many bytes from the end as it says."""
    length = int.from_bytes(mapped[-10:-6], "little")
    return max(0, len(mapped) - 10 - length), len(mapped)


def _row_group(pairs: Any) -> Any:
    """The pairs of a table in one chunk, which is written as one record batch."""
    try:
        return pairs.combine_chunks()
    except arrow.ArrowInvalid as error:  # offsets have 32 bits
        raise InputError(
            f"{len(pairs):,} consecutive rows have more than 2 billion tokens; lower "
            "data.max_length."
        ) from error
