"""Scorers for tests of the search: what follows is a function of the source and the prefix."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kutta.data.tokenizer import PAD
from kutta.translate.hypothesis import Continuations
from kutta.translate.scorer import best_of

Row = tuple[int, ...]
Table = Callable[[Row, Row], NDArray[np.float32]]  # source and prefix with BOS -> (V,)


def rows_of(source: Tensor) -> list[list[int]]:
    """Sources (B, S) without their padding."""
    return [[id for id in row if id != PAD] for row in source.tolist()]


@dataclass
class ScriptedDecoding:
    """Prefixes of every hypothesis in every column, and the sources of the columns."""

    table: Table
    beam: int
    sources: list[Row]
    prefixes: list[list[Row]]

    def enter(self, columns: Sequence[int], sources: Sequence[Sequence[int]]) -> None:
        for column, source in zip(columns, sources, strict=True):
            self.sources[column] = tuple(source)
            self.prefixes[column] = [()] * self.beam

    def step(self, tokens: NDArray[np.int64], count: int) -> Continuations:
        assert tokens.shape == (len(self.sources), self.beam)
        tables: list[NDArray[np.float32]] = []
        for column, row in enumerate(tokens.tolist()):
            own = self.prefixes[column]
            own[:] = [(*prefix, token) for prefix, token in zip(own, row, strict=True)]
            tables += [self.table(self.sources[column], prefix) for prefix in own]
        return best_of(np.stack(tables), count)

    def extend(self, parents: NDArray[np.int64]) -> None:
        pairs = zip(self.prefixes, parents.tolist(), strict=True)
        self.prefixes = [[own[parent] for parent in row] for own, row in pairs]

    def select(self, columns: Sequence[int], total: int) -> None:
        more = total - len(columns)
        self.sources = [self.sources[column] for column in columns] + [()] * more
        kept = [self.prefixes[column] for column in columns]
        self.prefixes = kept + [[()] * self.beam for _ in range(more)]


@dataclass
class Scripted:
    """A scorer of such a function."""

    table: Table
    vocabulary: int
    steps: int = 0

    def start(self, beam: int) -> ScriptedDecoding:
        def counted(source: Row, prefix: Row) -> NDArray[np.float32]:
            self.steps = max(self.steps, len(prefix))
            return self.table(source, prefix)

        return ScriptedDecoding(counted, beam, [], [])
