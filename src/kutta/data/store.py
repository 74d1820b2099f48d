"""The token store: encoded pairs in one memory-mapped Arrow file."""

import mmap
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from kutta.data.ragged import Lengths, Ragged, Tokens, id_type
from kutta.errors import InputError
from kutta.files import atomic_path

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
    written = 0
    with (
        atomic_path(path) as temporary,
        arrow.OSFile(str(temporary), "wb") as sink,
        arrow.ipc.new_file(sink, schema) as writer,
    ):
        for sides in _row_groups(chunks):
            writer.write_batch(arrow.record_batch([*map(_list_array, sides)], schema=schema))
            written += len(sides[0])
    return written


class Store:
    """Encoded pairs by number, in row groups of ROWS. Nothing is read until it is needed."""

    def __init__(self, mapped: mmap.mmap, batches: Sequence[Any]) -> None:
        self._mapped = mapped
        self._sides = [[_views(batch.column(side)) for batch in batches] for side in range(2)]
        self._pairs = sum(batch.num_rows for batch in batches)
        self._release()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map the file into memory; time and memory depend on its number of row groups only."""
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise InputError(
                f"Cannot read {path}: {error.strerror or error}; {_REMEDY}."
            ) from error
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
    def row_groups(self) -> int:
        return len(self._sides[0])

    def lengths(self, groups: Sequence[int] | None = None) -> tuple[Lengths, Lengths]:
        """The source and the target lengths of the pairs in some row groups, or in all."""
        chosen = range(self.row_groups) if groups is None else groups
        source, target = (
            np.concatenate([np.diff(side[i][1]) for i in chosen] or [np.zeros(0, np.int32)])
            for side in self._sides
        )
        self._release()
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
        source, target = (_row(side[group], row) for side in self._sides)
        return source, target

    def gather(self, indices: Sequence[int] | NDArray[np.int64]) -> list[tuple[Tokens, Tokens]]:
        """Copies of the pairs with these numbers, in this order."""
        pairs: list[tuple[Tokens, Tokens]] = []
        for start in range(0, len(indices), _AT_ONCE):
            chosen = (self[int(index)] for index in indices[start : start + _AT_ONCE])
            pairs += [(source.copy(), target.copy()) for source, target in chosen]
            self._release()
        return pairs

    def _release(self) -> None:
        """Release the pages that were read; each pair also maps its neighbours on disk.

        They stay in the page cache but no longer count as memory of this process; without this,
        training would soon hold the whole file.
        """
        if sys.platform != "win32":
            self._mapped.madvise(mmap.MADV_DONTNEED)


def _row_groups(chunks: Iterable[PairChunk]) -> Iterator[PairChunk]:
    """The same rows in chunks of ROWS; the last one may be smaller."""
    waiting: list[PairChunk] = []
    count = 0
    for chunk in chunks:
        waiting.append(chunk)
        count += len(chunk[0])
        while count >= ROWS:
            source, target = (Ragged.join(side).split(ROWS) for side in zip(*waiting, strict=True))
            yield source[0], target[0]
            waiting, count = [(source[1], target[1])], count - ROWS
    if count:
        source, target = map(Ragged.join, zip(*waiting, strict=True))
        yield source, target


def _list_array(rows: Ragged) -> Any:
    if len(rows.ids) >= 1 << 31:  # offsets have 32 bits
        raise InputError(
            f"{len(rows):,} consecutive rows have more than 2 billion tokens; lower "
            "data.max_length."
        )
    return arrow.ListArray.from_arrays(rows.offsets, arrow.array(rows.ids))


def _views(array: Any) -> tuple[Tokens, NDArray[np.int32]]:
    """The flat tokens of a list array and its row offsets, without copying them."""
    tokens, offsets = array.values.to_numpy(), array.offsets.to_numpy()
    return cast(Tokens, tokens), cast(NDArray[np.int32], offsets)


def _row(views: tuple[Tokens, NDArray[np.int32]], row: int) -> Tokens:
    tokens, offsets = views
    return tokens[offsets[row] : offsets[row + 1]]


def _foreign(path: Path) -> InputError:
    return InputError(f"{path} is truncated or not a Kutta token store; {_REMEDY}.")
