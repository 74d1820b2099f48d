"""Tensors of a safetensors file, read without torch and the safetensors package."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kutta.errors import InputError
from kutta.limits import DOCUMENT_BYTES
from kutta.parsing import DocumentError, parse_json

TYPES: dict[str, type[np.generic]] = {"F32": np.float32, "I8": np.int8}  # as safetensors names them


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: its type and shape, and the first of its bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def read(self, file: BinaryIO) -> NDArray[Any]:
        file.seek(self.offset)
        found = np.fromfile(file, self.dtype, self.size)
        if found.size != self.size:
            raise ValueError("the weights are truncated")
        return found.reshape(self.shape)


def stored_in(path: Path) -> dict[str, Stored]:
    """The tensors of a file by name: those in fp32 and in 8 bits."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > DOCUMENT_BYTES:
                raise ValueError("its header is too long")
            header: dict[str, Any] = parse_json(file.read(length).decode())
        header.pop("__metadata__", None)
        end = path.stat().st_size - length - 8
        found = {name: _stored(entry, 8 + length, end) for name, entry in header.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, DocumentError) as error:
        raise InputError(f"{path} is damaged ({error}); copy it again.") from None
    return {name: one for name, one in found.items() if one is not None}


def _stored(entry: dict[str, Any], start: int, end: int) -> Stored | None:
    if entry["dtype"] not in TYPES:
        return None
    dtype, shape = np.dtype(TYPES[entry["dtype"]]), tuple(entry["shape"])
    first, last = entry["data_offsets"]
    whole = all(type(n) is int and n >= 0 for n in (*shape, first, last))
    if not whole or last > end or last - first != math.prod(shape) * dtype.itemsize:
        raise ValueError("its header lies")
    return Stored(dtype, shape, start + first)
