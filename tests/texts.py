"""Corpora of tests, read without a config."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kutta.config import DataConfig
from kutta.data import corpus


def data_of(folder: Path, source: str, target: str, columns: Sequence[str] = ()) -> DataConfig:
    """Settings that say where a corpus is; they are not checked against each other."""
    settings: dict[str, Any] = {"dir": str(folder), "source": source, "target": target}
    return DataConfig.model_construct(**settings, columns=list(columns))


def read_pairs(folder: Path, name: str, *languages: Any) -> Iterator[tuple[str, str]]:
    """The pairs of a corpus; `languages` are source, target and optionally the TSV's columns."""
    return corpus.read_pairs(data_of(folder, *languages), name)


def count_pairs(folder: Path, name: str, *languages: Any) -> int:
    """The number of pairs of a corpus."""
    return corpus.count_pairs(data_of(folder, *languages), name)
