"""Columns, stores and vocabularies from plain lists, for tests."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from kutta.data import store
from kutta.data.ragged import Ragged, id_type
from kutta.data.store import PairChunk, write_chunks
from kutta.data.tokenizer import Ids, Pair, Pretokenized


def ragged(rows: Sequence[Ids], kind: type[np.integer[Any]] = np.uint16) -> Ragged:
    return Ragged.from_bytes([np.array(row, kind).tobytes() for row in rows], kind)


def lists(rows: Ragged) -> list[list[int]]:
    """The rows as plain lists."""
    ends = np.cumsum(rows.lengths)
    return [rows.ids[end - n : end].tolist() for end, n in zip(ends, rows.lengths, strict=True)]


def write_store(path: Path, pairs: Iterable[Pair], vocab_size: int) -> int:
    """Write encoded pairs, as many at once as a record holds; return how many."""

    def chunks() -> Iterator[PairChunk]:
        stream, kind = iter(pairs), id_type(vocab_size)
        while some := list(islice(stream, store.ROWS)):
            yield ragged([pair[0] for pair in some], kind), ragged([pair[1] for pair in some], kind)

    return write_chunks(path, chunks(), vocab_size)


def split_of(lines: Iterable[str]) -> Pretokenized:
    """The vocabulary of a text that is already split."""
    return Pretokenized.of(Counter(token for line in lines for token in line.split()))
