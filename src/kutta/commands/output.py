"""Text files that commands write: plain, gzip or zstandard by their name."""

import gzip
import io
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO, cast

import zstandard

from kutta.errors import InputError
from kutta.files import atomic_path, followed


@contextmanager
def text_output(path: Path | None) -> Generator[TextIO]:
    """Standard output, or a file that is complete or unchanged; .gz and .zst are compressed."""
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        sys.stdout.flush()
        return
    path = followed(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file for the output.")
    with (
        atomic_path(path) as temporary,
        open(temporary, "wb") as file,
        _compressed(file, path.suffix) as stream,
        io.TextIOWrapper(stream, encoding="utf-8", newline="\n") as out,
    ):
        yield out


def _compressed(file: BinaryIO, suffix: str) -> BinaryIO:
    """The stream that compresses into a file as its suffix says."""
    if suffix == ".gz":
        # Without name and time in its header, the same text gives the same file.
        return cast(BinaryIO, gzip.GzipFile("", "wb", fileobj=file, mtime=0))
    if suffix == ".zst":
        return cast(BinaryIO, zstandard.ZstdCompressor().stream_writer(file, closefd=False))
    return file
