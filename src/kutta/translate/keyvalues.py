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

    In memory slots come first, so a step fills what follows, and what is filled is one piece; or,
    `by_sentence`, the slots of a sentence are side by side, where they are read together.
    """

    def __init__(
        self,
        zeros: Zeros,
        count: int,
        heads: int,
        width: int,
        room: int,
        by_sentence: bool = False,
    ) -> None:
        self._zeros, self._count, self._room = zeros, count, room
        self._by_sentence = by_sentence
        self.arrays = self._made(0, 0, heads, width)
        self.used = 0

    @property
    def filled(self) -> list[Array]:
        """The filled slots of all arrays, each (used, B, H, d_h)."""
        return [array[: self.used] for array in self.arrays]

    def reserve(self, count: int) -> None:
        """Have room for the next `count` slots."""
        end = self.used + count
        if self.arrays and end > len(self.arrays[0]):
            more = end + max(self._room * count, end)
            grown = self._made(more, *self.arrays[0].shape[1:])
            for new, array in zip(grown, self.arrays, strict=True):
                new[: self.used] = array[: self.used]
            self.arrays = grown

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
        if self.arrays and self.arrays[0].shape[1] != total:
            capacity, _, *of_slot = self.arrays[0].shape
            chosen = self._made(capacity, total, *of_slot)
        else:
            chosen = self.arrays
        for new, array in zip(chosen, self.arrays, strict=True):
            new[:m, :b] = array[where]  # a copy, so they may be the same array
            new[:m, b:] = 0
        self.arrays = chosen
        self.used = m

    def _made(self, capacity: int, total: int, *of_slot: int) -> list[Array]:
        """New arrays, in one piece of memory: large ones are provided faster."""
        if self._by_sentence:
            return list(self._zeros((self._count, total, capacity, *of_slot)).swapaxes(1, 2))
        return list(self._zeros((self._count, capacity, total, *of_slot)))


class Memories:
    """Keys (B, H, d_h, S) and values (B, H, S, d_h) of cross-attention, in turns.

    S places are for source tokens. Sentences come first: each is written once and then read at
    every step.
    """

    def __init__(self, zeros: Zeros, count: int, heads: int, width: int) -> None:
        self._zeros, self._count, self._sizes = zeros, count, (heads, width)
        self.arrays = self._made(0, 0)

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
        same = self.arrays and (len(self.arrays[0]), self.width) == (total, width)
        chosen = self.arrays if same else self._made(total, width)
        for number, (new, array) in enumerate(zip(chosen, self.arrays, strict=True)):
            places = _places(number, kept)
            new[:b, *places] = array[columns][:, *places]  # a copy
        self.arrays = chosen

    def _made(self, total: int, width: int) -> list[Array]:
        heads, size = self._sizes
        keys = self._zeros((self._count, total, heads, size, width))
        values = self._zeros((self._count, total, heads, width, size))
        return [array for pair in zip(keys, values, strict=True) for array in pair]


def _places(number: int, count: int) -> tuple[slice, ...]:
    """The first places of keys or of values, behind the index of a column."""
    whole, some = slice(None), slice(count)
    return (whole, some) if number % 2 else (whole, whole, some)
