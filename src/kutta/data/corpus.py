"""Sentence pairs from files: parallel text or TSV, plain, gzip or zstandard, read as a stream."""

import difflib
import gzip
import io
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from kutta.errors import InputError

SUFFIXES = ("", ".gz", ".zst")
ROWS = 2048  # lines of a chunk: enough work for another process, and small in memory


@dataclass(frozen=True)
class LineChunk:
    """The next lines of each file of a corpus, as raw bytes.

    Reading chunks is fast; the work starts with `decode`, so a chunk can be sent to another
    process. File names and line numbers are kept for error messages.
    """

    files: tuple[str, ...]
    lines: tuple[bytes, ...]  # of each file, the same number in all
    first: int  # the number of the first line
    tsv: bool = False

    def decode(self) -> tuple[Sequence[str], Sequence[str]]:
        """Sources and targets: from two files, a TSV, or ("", line) for each line of one file."""
        texts = [
            _decode_lines(lines, file, self.first)
            for file, lines in zip(self.files, self.lines, strict=True)
        ]
        if self.tsv:
            numbered = enumerate(texts[0], self.first)
            pairs = [_columns(line, self.files[0], number) for number, line in numbered]
            sources, targets = zip(*pairs, strict=True)
            return sources, targets
        return texts[0] if len(texts) == 2 else [""] * len(texts[0]), texts[-1]


def locate(folder: Path, name: str, language: str) -> Path:
    """The file `name.language` in `folder`, plain or compressed (.gz, .zst)."""
    return _find(folder, f"{name}.{language}")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, without their newline and otherwise unchanged.

    Only `\\n` and `\\r\\n` end a line: other Unicode separators (U+2028, U+0085, ...) occur inside
    real sentences, and splitting there would misalign the two sides of a corpus.
    """
    with _open(path) as stream:
        yield from read_stream(stream, str(path))


def read_stream(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of an open binary stream such as standard input; `name` is used in errors."""
    for number, raw in enumerate(stream, start=1):
        yield _decode(raw, name, number)


def read_pairs(folder: Path, name: str, source: str, target: str) -> Iterator[tuple[str, str]]:
    """The sentence pairs of a corpus: `name.source` beside `name.target`, or a TSV file `name`.

    Without a source language (a language model) each line of `name.target` has an empty source.
    """
    chunks = read_chunks(folder, name, source, target)
    return (pair for chunk in chunks for pair in zip(*chunk.decode(), strict=True))


def read_chunks(folder: Path, name: str, source: str, target: str) -> Iterator[LineChunk]:
    """The corpus that `read_pairs` reads, in chunks of lines."""
    files, tsv = _files(folder, name, source, target)
    names, first = tuple(map(str, files)), 1
    streams = [_line_lists(file) for file in files]
    for parts in zip_longest(*streams, fillvalue=()):
        counts = list(map(len, parts))
        if min(counts) < max(counts):
            for file, lines in zip(names, parts, strict=True):
                _decode_lines(b"".join(lines), file, first)  # report a damaged line first
            raise _unequal(names, [first - 1 + n for n in counts], streams)
        yield LineChunk(names, tuple(map(b"".join, parts)), first, tsv)
        first += counts[0]
    if first == 1:
        raise InputError(f"The corpus {name!r} in {folder} is empty; it needs at least one line.")


def count_pairs(folder: Path, name: str, source: str, target: str) -> int:
    """The number of pairs of a corpus, without decoding them."""
    with _open(_files(folder, name, source, target)[0][0]) as stream:
        return sum(1 for _ in stream)


def _files(folder: Path, name: str, source: str, target: str) -> tuple[list[Path], bool]:
    """The files of a corpus, and whether they are one TSV file."""
    if source and name.endswith((".tsv", ".tsv.gz", ".tsv.zst")):
        return [_find(folder, name)], True
    return [locate(folder, name, language) for language in (source, target) if language], False


def _line_lists(path: Path) -> Iterator[list[bytes]]:
    with _open(path) as stream:
        lines = iter(stream)
        while some := list(islice(lines, ROWS)):
            yield some


def _unequal(
    names: tuple[str, ...], counts: list[int], streams: list[Iterator[list[bytes]]]
) -> InputError:
    one, other = (n + sum(map(len, rest)) for n, rest in zip(counts, streams, strict=True))
    return InputError(
        f"{names[0]} has {one:,} lines but {names[1]} has {other:,}; line n of one must be the "
        "translation of line n of the other."
    )


def _columns(line: str, name: str, number: int) -> tuple[str, str]:
    columns = line.split("\t", 2)
    if len(columns) < 2:
        raise InputError(
            f"{name}, line {number} has only one column; "
            "it must have the source sentence, a tab, and the target sentence."
        )
    return columns[0], columns[1]


def _find(folder: Path, name: str) -> Path:
    """`folder/name`, plain or compressed; the name may already end in .gz or .zst."""
    for suffix in SUFFIXES:
        path = folder / f"{name}{suffix}"
        if path.is_file():
            return path
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}; set data.dir to the folder of the corpus.")
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
    """The uncompressed lines of `path` with their newlines; failures become an InputError."""
    try:
        with open(path, "rb") as file:
            if path.suffix == ".gz":
                # Buffered twice: only a BufferedReader is fast at finding line ends.
                yield io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=file)))
            elif path.suffix == ".zst":
                yield _unzstd(file)
            else:
                yield file
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise InputError(
            f"{path} is damaged or truncated ({error}); copy or download it again."
        ) from error
    except OSError as error:
        raise InputError(
            f"Cannot read {path}: {error.strerror or error}; check that it exists and is readable."
        ) from error


def _unzstd(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a .zst file, which may have several frames (pzstd, cat a.zst b.zst).

    Unlike zstandard's own reader, this one detects a truncated file.
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


def _decode_lines(raw: bytes, name: str, first: int) -> list[str]:
    """The lines of a part of a file that starts with line `first`."""
    try:
        if first > 1 and b"\0" not in raw:
            return raw.decode("utf-8").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        pass  # decode line by line to find the one at fault
    return [_decode(line, name, number) for number, line in enumerate(io.BytesIO(raw), first)]


def _decode(raw: bytes, name: str, number: int) -> str:
    raw = raw.removesuffix(b"\n").removesuffix(b"\r") if raw.endswith(b"\n") else raw
    if number == 1:
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in raw:
        raise InputError(
            f"{name}, line {number} has a NUL byte, so the file is damaged or not text; "
            "remove the byte or save the file as UTF-8."
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name}, line {number} is not valid UTF-8 (byte {error.start + 1} of the line); "
            "save the file as UTF-8."
        ) from error
