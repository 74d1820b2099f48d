"""The shortlist of an exported model: which target tokens a source token may lead to.

The output layer then computes the tokens that the sentences of a batch list, not all of them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

from kutta.data.tokenizer import SPECIALS
from kutta.errors import InputError

SHORTLIST = "shortlist.npz"
BLOCK = 32  # the output layer computes whole blocks of tokens

Array = NDArray[Any]


@dataclass(frozen=True)
class Listed:
    """The listed tokens of a batch: ids (n,) in order, and what the graph is given for them.

    The ids are filled up with PAD to whole blocks, whose bias makes them impossible.
    """

    ids: Array
    feeds: dict[str, Array]


@dataclass(frozen=True)
class Shortlist:
    """candidates (source tokens, N) and `frequent` (F,) are target ids; all sentences list these.

    weights (V, d) and, in 8 bits, scales (V,) are those of the output layer.
    """

    candidates: Array
    frequent: Array
    weights: Array
    scales: Array | None = None

    @classmethod
    def read(cls, path: Path, sources: int, vocabulary: int) -> "Shortlist":
        damaged = f"{path} is damaged; copy the exported folder again, or export the run again."
        try:
            _check_sizes(path)
            with np.load(path, allow_pickle=False) as file:
                found = cls(**{name: file[name] for name in file.files})
        except (OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile, MemoryError):
            raise InputError(damaged) from None
        ids = [found.candidates, found.frequent]
        fits = (
            all(np.issubdtype(each.dtype, np.integer) for each in ids)
            and all(each.size and each.min() >= 0 and each.max() < vocabulary for each in ids)
            and (found.candidates.ndim, found.frequent.ndim, found.weights.ndim) == (2, 1, 2)
            and (len(found.candidates), len(found.weights)) == (sources, vocabulary)
            and (found.scales is None or found.scales.shape == (vocabulary,))
        )
        if not fits:
            raise InputError(damaged)
        return found

    def ids(self, sources: Iterable[Sequence[int]]) -> Array:
        """The target ids (n,) that these sources list, in order; the special ones come first."""
        tokens = np.unique(np.concatenate([np.zeros(0, np.int64), *map(np.asarray, sources)]))
        chosen = self.candidates[tokens.astype(np.int64)].ravel()
        special = np.arange(len(SPECIALS), dtype=chosen.dtype)
        return np.unique(np.concatenate([special, self.frequent, chosen])).astype(np.int64)

    def listed(self, sources: Iterable[Sequence[int]]) -> Listed:
        """The tokens of a batch, and the part of the output layer that computes them."""
        ids = self.ids(sources)
        bias = np.zeros(len(ids) + -len(ids) % BLOCK, np.float32)
        bias[len(ids) :] = -np.inf
        ids = np.concatenate([ids, np.zeros(len(bias) - len(ids), np.int64)])
        feeds = {"weights": np.ascontiguousarray(self.weights[ids].T), "bias": bias}
        if self.scales is not None:
            feeds["scales"] = self.scales[ids]
        return Listed(ids, {f"listed_{name}": array for name, array in feeds.items()})


def _check_sizes(path: Path) -> None:
    """Reject arrays that are larger than their file: compressed ones, and headers that lie."""
    with ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.compress_type != ZIP_STORED or entry.file_size != entry.compress_size:
                raise ValueError("it is compressed")
            with archive.open(entry) as file:
                read = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}
                shape, _, dtype = read[read_magic(file)](file)
                if math.prod(shape) * dtype.itemsize != entry.file_size - file.tell():
                    raise ValueError("its header lies")
