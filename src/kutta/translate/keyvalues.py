"""Keys and values in memory, in arrays of numpy or of torch."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kutta.translate.hypothesis import Integers

Array = Any  # of numpy or of torch, as the model asks for
Zeros = Callable[[tuple[int, ...]], Array]  # makes an array of this shape

# Steps for which there is room when arrays are made. Memory of a CPU is provided page by page when
# it is first written to, so room costs nothing, but new arrays are slow. Memory of a GPU is taken.
ROOM, ROOM_ON_GPU = 32, 8


class Caches:
    """Keys and values (capacity, B, H, d_h) of self-attention; the first `used` slots are filled.

    Slots come first, so a step fills the memory that follows, and what is filled is one piece.
    """

    def __init__(self, zeros: Zeros, count: int, heads: int, width: int, room: int) -> None:
        self.arrays = [zeros((0, 0, heads, width)) for _ in range(count)]
        self.used = 0
        self._zeros, self._room = zeros, room

    @property
    def filled(self) -> list[Array]:
        """The filled slots of all arrays, each (used, B, H, d_h)."""
        return [array[: self.used] for array in self.arrays]

    def reserve(self, count: int) -> None:
        """Have room for the next `count` slots."""
        end = self.used + count
        if self.arrays and end > len(self.arrays[0]):
            for number, array in enumerate(self.arrays):
                grown = self._zeros((end + max(self._room * count, end), *array.shape[1:]))
                grown[: self.used] = array[: self.used]
                self.arrays[number] = grown

    def following(self, count: int) -> list[Array]:
        """The next `count` slots of all arrays, which are reserved."""
        return [array[self.used : self.used + count] for array in self.arrays]

    def repeat(self, count: int) -> None:
        """Fill the next `count` slots of all arrays with what is in the first of them."""
        for array in self.arrays:
            array[self.used + 1 : self.used + count] = array[self.used : self.used + 1]

    def select(self, columns: Sequence[int], slots: Integers, total: int) -> None:
        """Keep some columns and of each some slots (b, m), and have `total` columns.

        What is in no column is 0, as it may enter sums with a weight of 0.
        """
        b, m = slots.shape
        where = slots.T, np.array(columns, np.int64)[None]
        for number, array in enumerate(self.arrays):
            shape = len(array), total, *array.shape[2:]
            chosen = array if array.shape == shape else self._zeros(shape)
            chosen[:m, :b] = array[where]  # a copy, so they may be the same array
            chosen[:m, b:] = 0
            self.arrays[number] = chosen
        self.used = m


class Memories:
    """Keys (B, H, d_h, S) and values (B, H, S, d_h) of cross-attention, in turns.

    S places are for source tokens. Sentences come first: each is written once and then read at
    every step.
    """

    def __init__(self, zeros: Zeros, count: int, heads: int, width: int) -> None:
        shapes = [(0, heads, width, 0), (0, heads, 0, width)]
        self.arrays = [zeros(shape) for _ in range(count) for shape in shapes]
        self._zeros = zeros

    @property
    def width(self) -> int:
        return self.arrays[0].shape[3] if self.arrays else 0

    def write(self, columns: Sequence[int], arrays: Sequence[Array]) -> None:
        """Fill the first places of some columns."""
        for number, (memory, array) in enumerate(zip(self.arrays, arrays, strict=True)):
            memory[columns, *_places(number, array.shape[3 - number % 2])] = array

    def select(self, columns: Sequence[int], width: int, total: int) -> None:
        """Keep some columns, have `total` of them, and `width` places in each."""
        kept, b = min(width, self.width), len(columns)
        for number, array in enumerate(self.arrays):
            shape = [total, *array.shape[1:]]
            shape[3 - number % 2] = width
            same = array.shape == tuple(shape)
            chosen = array if same else self._zeros(tuple(shape))
            places = _places(number, kept)
            chosen[:b, *places] = array[columns][:, *places]  # a copy
            self.arrays[number] = chosen


def _places(number: int, count: int) -> tuple[slice, ...]:
    """The first places of keys or of values, behind the index of a column."""
    whole, some = slice(None), slice(count)
    return (whole, some) if number % 2 else (whole, whole, some)
