"""Writing the text of a split: one file per language, counted and hashed."""

import gzip
import hashlib
import io
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast


class SplitWriter:
    """A writer for a split: one file per language, counted and hashed."""

    def __init__(
        self, stack: ExitStack, stem: Path, languages: Sequence[str], end: str = ""
    ) -> None:
        self.lines = 0
        paths = [Path(f"{stem}.{language}{end}") for language in languages]
        self._files = [stack.enter_context(_create(path)) for path in paths]
        self._hashes = {language: hashlib.sha256() for language in languages}

    def write(self, row: Sequence[str]) -> None:
        for text, file, known in zip(row, self._files, self._hashes.values(), strict=True):
            line = f"{text}\n".encode()
            file.write(line)
            known.update(line)
        self.lines += 1

    def outcome(self, expected: int | None, dropped: Counter[str]) -> dict[str, Any]:
        """The report of this split; the sha256 are of the uncompressed text."""
        hashes = {language: known.hexdigest() for language, known in self._hashes.items()}
        facts = {"lines": self.lines, "expected": expected, "dropped": dict(dropped)}
        return facts | {"sha256": hashes}


@contextmanager
def _create(path: Path) -> Generator[BinaryIO]:
    """A file to write to, compressed if its name ends in .gz."""
    with open(path, "wb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        with (
            gzip.GzipFile("", "wb", compresslevel=4, fileobj=raw, mtime=0) as packed,  # no date
            io.BufferedWriter(cast(io.RawIOBase, packed), 1 << 20) as buffer,
        ):
            yield cast(BinaryIO, buffer)
