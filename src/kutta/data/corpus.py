"""Files to sentence pairs: parallel text or TSV, plain, gzip or zstandard, read as a stream."""

import difflib
import gzip
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

import zstandard

from kutta.errors import InputError

SUFFIXES = ("", ".gz", ".zst")


def locate(folder: Path, name: str, language: str) -> Path:
    """The file `name.language` in `folder`, plain or compressed (.gz, .zst)."""
    return _find(folder, f"{name}.{language}")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, without their newline and nothing else changed.

    Only `\\n` and `\\r\\n` end a line: other separators of Unicode (U+2028, U+0085, ...) occur
    inside real sentences, and splitting there would shift one side of a corpus against the other.
    """
    try:
        with _open(path) as stream:
            yield from read_stream(stream, str(path))
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise InputError(
            f"{path} is damaged or cut short ({error}); copy or download it again."
        ) from error
    except OSError as error:
        raise InputError(
            f"Cannot read {path}: {error.strerror or error}; check that it exists and is readable."
        ) from error


def read_stream(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of an open binary stream such as standard input; `name` is for errors."""
    for number, raw in enumerate(stream, start=1):
        yield _decode(raw, name, number)


def read_pairs(folder: Path, name: str, source: str, target: str) -> Iterator[tuple[str, str]]:
    """The sentence pairs of a corpus: `name.source` beside `name.target`, or a TSV file `name`.

    Without a source language (a language model) each line of `name.target` has an empty source.
    """
    if not source:
        pairs = (("", line) for line in read_lines(locate(folder, name, target)))
    elif name.endswith((".tsv", ".tsv.gz", ".tsv.zst")):
        pairs = _tsv_pairs(_find(folder, name))
    else:
        pairs = _parallel_pairs(locate(folder, name, source), locate(folder, name, target))
    first = next(pairs, None)
    if first is None:
        raise InputError(
            f"The corpus {name!r} in {folder} is empty; give files with at least one line."
        )
    yield first
    yield from pairs


def _parallel_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    sources, targets = read_lines(source), read_lines(target)
    for before, (one, other) in enumerate(zip_longest(sources, targets)):
        if one is None or other is None:
            longer = before + 1 + sum(1 for _ in (targets if one is None else sources))
            counts = (before, longer) if one is None else (longer, before)
            raise InputError(
                f"{source} has {counts[0]:,} lines but {target} has {counts[1]:,}; line n of one "
                "must translate line n of the other, so make them equally long."
            )
        yield one, other


def _tsv_pairs(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t", 2)
        if len(columns) < 2:
            raise InputError(
                f"{path}, line {number} has a single column; "
                "write the source sentence, a tab, then the target sentence."
            )
        yield columns[0], columns[1]


def _find(folder: Path, name: str) -> Path:
    """`folder/name` as it is or compressed; a name that already ends in .gz or .zst counts too."""
    for suffix in SUFFIXES:
        path = folder / f"{name}{suffix}"
        if path.is_file():
            return path
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}; set data.dir to where the corpus is.")
    present = sorted(
        path.name for path in folder.iterdir() if path.is_file() and path.name[0] != "."
    )
    similar = difflib.get_close_matches(name, present, n=3) or present[:5]
    raise InputError(
        f"There is no {name} (nor {name}.gz, {name}.zst) in {folder}; "
        + (f"it has {', '.join(similar)}." if similar else "the folder has no files.")
    )


@contextmanager
def _open(path: Path) -> Generator[Iterable[bytes]]:
    """The uncompressed lines of `path`, each with its newline."""
    with open(path, "rb") as file:
        if path.suffix == ".gz":
            yield gzip.GzipFile(fileobj=file)
        elif path.suffix == ".zst":
            yield _unzstd(file)
        else:
            yield file


def _unzstd(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a .zst file, which may hold several frames (pzstd, cat a.zst b.zst).

    zstandard's own reader takes a file cut short for a complete one; this one does not.
    """
    frame, rest, data = None, b"", b""
    while data := data or file.read(1 << 17):
        frame = frame or zstandard.ZstdDecompressor().decompressobj()
        *lines, rest = (rest + frame.decompress(data)).split(b"\n")
        yield from (line + b"\n" for line in lines)
        data, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("the last frame has no end")
    if rest:
        yield rest


def _decode(raw: bytes, name: str, number: int) -> str:
    raw = raw.removesuffix(b"\n").removesuffix(b"\r") if raw.endswith(b"\n") else raw
    if number == 1:
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in raw:
        raise InputError(
            f"{name}, line {number} has a NUL byte; the file is damaged or not text, "
            "remove the byte or save the file as UTF-8."
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name}, line {number} is not valid UTF-8 (byte {error.start + 1} of the line); "
            "save the file as UTF-8."
        ) from error
