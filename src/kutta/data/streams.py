"""Lines of bytes from files and streams, plain or compressed, in memory that no file exceeds."""

import gzip
import io
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from kutta.errors import InputError
from kutta.limits import LINE_BYTES

BLOCK = 1 << 17  # bytes read at once


def bounded(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The lines of a stream, in memory that no line exceeds."""
    lines = iter(partial(stream.readline, LINE_BYTES + 1), b"")
    for number, line in enumerate(lines, start=1):
        if len(line) > LINE_BYTES:
            raise InputError(
                f"{name}, line {number} has more than {LINE_BYTES >> 20} MB, so the file is "
                "damaged or not text; end each sentence with a newline."
            )
        yield line


@contextmanager
def open_lines(path: Path) -> Generator[Iterable[bytes]]:
    """The uncompressed lines of `path` with their newlines; failures become an InputError."""
    with open_stream(path) as stream:
        yield bounded(stream, str(path))


@contextmanager
def open_stream(path: Path) -> Generator[BinaryIO]:
    """The uncompressed bytes of `path`; failures become an InputError."""
    try:
        with open(path, "rb") as file:
            if path.suffix == ".gz":
                # Buffered twice: only a BufferedReader is fast at finding line ends.
                raw = cast(io.RawIOBase, gzip.GzipFile(fileobj=file))
                yield cast(BinaryIO, io.BufferedReader(raw))
            else:
                yield _unzstd(file) if path.suffix == ".zst" else file
    except (EOFError, gzip.BadGzipFile, zlib.error, _DamagedZstd) as error:
        raise InputError(
            f"{path} is damaged or truncated ({error}); copy or download it again."
        ) from error
    except OSError as error:
        raise InputError(
            f"Cannot read {path}: {error.strerror or error}; check that it exists and is readable."
        ) from error


class _DamagedZstd(Exception):
    """A .zst file that cannot be decompressed."""


class _Unzstd(io.RawIOBase):
    """Arrow's decompression as a raw stream of Python.

    It reads several frames (pzstd, cat a.zst b.zst) and detects a truncated file. Its memory does
    not depend on what the file expands to.
    """

    def __init__(self, file: BinaryIO) -> None:
        import pyarrow  # pyright: ignore[reportMissingTypeStubs]

        self._stream = cast(Any, pyarrow).CompressedInputStream(file, "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            return self._stream.readinto(buffer)
        except OSError as error:
            if error.errno is not None:  # of the file itself
                raise
            raise _DamagedZstd(str(error)) from None


def _unzstd(file: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Unzstd(file), BLOCK))
