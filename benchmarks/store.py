"""Starting up on five million prepared pairs."""

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
from figures import Figure
from numpy.typing import NDArray
from worker import worker

from kutta.data.column import Column, id_type
from kutta.data.store import ROWS, Chunk, write_chunks

PAIRS, VOCABULARY, TYPICAL = 5_000_000, 32_768, 24


def measure_store(threads: int, folder: Path) -> list[Figure]:
    """Start up on five million pairs, from a file that is not in memory yet."""
    store = folder / "large.arrow"
    synthetic_store(store, PAIRS, VOCABULARY, TYPICAL)
    rows = []
    for _ in range(3):
        forget(store)
        with worker(threads, "startup", store=str(store), batch_tokens=4096) as fresh:
            rows.append(fresh.ask())
    return [
        Figure("store-5m", "startup_s", median(row["seconds"] for row in rows), at_most=10),
        Figure("store-5m", "peak_mb", max(row["peak_mb"] for row in rows), at_most=1000),
        Figure("store-5m", "file_mb", store.stat().st_size / 1e6),
    ]


def synthetic_store(path: Path, pairs: int, vocabulary: int, typical: int) -> None:
    """Write a store of random pairs: lengths as in a corpus around `typical`, ids after Zipf."""
    random = np.random.default_rng(1)
    weights = 1 / np.arange(10, 10 + vocabulary - 4)
    ids = random.choice(vocabulary - 4, 2**23, p=weights / weights.sum()) + 4
    ids = ids.astype(id_type(vocabulary))

    def column(lengths: NDArray[np.float64]) -> Column:
        whole = np.rint(lengths).clip(2, 120).astype(np.int32)
        tokens = int(whole.sum())
        begin = int(random.integers(len(ids) - tokens))
        return Column(ids[begin : begin + tokens], whole)

    def chunks() -> Iterator[Chunk]:
        for start in range(0, pairs, ROWS):
            rows = min(ROWS, pairs - start)
            source = random.lognormal(np.log(typical), 0.5, rows)
            target = source * random.lognormal(0.03, 0.15, rows)
            yield column(source), column(target)

    write_chunks(path, chunks(), vocabulary)


def forget(path: Path) -> None:
    """Put a file out of the system's cache where that is possible, as on the next morning."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
