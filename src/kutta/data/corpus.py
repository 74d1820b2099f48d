"""Sentence pairs from files as a stream: parallel text, TSV or TMX; plain, gzip or zstandard."""

import difflib
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, NamedTuple

from kutta.config.data import DataConfig, language_of, places
from kutta.data.language import FUNCTION_WORDS
from kutta.data.streams import BLOCK, bounded, open_lines, open_stream
from kutta.errors import InputError
from kutta.limits import CHUNK_BYTES

ROWS = 2048  # lines of a chunk: enough work for another process, and small in memory
TSV = (".tsv", ".tsv.gz", ".tsv.zst")
TMX = (".tmx", ".tmx.gz", ".tmx.zst")


class MissingText(InputError):
    """Text that is not there; `folder` is where it was expected."""

    def __init__(self, sentence: str, folder: Path) -> None:
        super().__init__(sentence, folder)  # both, so that it can be pickled
        self.folder = folder

    def __str__(self) -> str:
        return self.args[0]


@dataclass(frozen=True)
class LineChunk:
    """The next lines of each file of a corpus, as raw bytes.

    Reading chunks is fast; the work starts with `decode`, so a chunk can be sent to another
    process. File names and line numbers are kept for error messages.
    """

    files: tuple[str, ...]
    lines: tuple[bytes, ...]  # of each file, the same number in all
    first: int  # the number of the first line
    columns: tuple[int, int] | None = None  # of source and target, in a TSV

    def decode(self) -> tuple[Sequence[str], Sequence[str]]:
        """Sources and targets: from two files, a TSV, or ("", line) for each line of one file."""
        texts = [
            _decode_lines(lines, file, self.first)
            for file, lines in zip(self.files, self.lines, strict=True)
        ]
        if self.columns is None:
            return texts[0] if len(texts) == 2 else [""] * len(texts[0]), texts[-1]
        source, target = self.columns
        needed = max(self.columns) + 1
        rows = [line.split("\t", needed) for line in texts[0]]
        for number, row in enumerate(rows, self.first):
            if len(row) < needed:
                raise InputError(
                    f"{self.files[0]}, line {number} has {len(row)} of the {needed} columns that "
                    "are needed; put a tab between two columns."
                )
        return [row[source] for row in rows], [row[target] for row in rows]


def locate(folder: Path, name: str, language: str = "") -> Path:
    """The file `name.language` or `name` in `folder`, plain or compressed (.gz, .zst)."""
    base, name = name, f"{name}.{language}" if language else name
    path = _present(folder, name)
    if path:
        return path
    if not folder.is_dir():
        problem = f"{folder} is a file" if folder.is_file() else f"There is no folder {folder}"
        raise MissingText(f"{problem}; set data.dir to the folder of the corpus.", folder)
    present = sorted(
        path.name for path in folder.iterdir() if path.is_file() and path.name[0] != "."
    )
    similar = difflib.get_close_matches(name, present, n=3) or present[:5]
    has = f"it has {', '.join(similar)}" if similar else "the folder has no files"
    if language and name.endswith(f".{language}.{language}"):
        has += f"; leave .{language} out of the name, it is added"
    elif language and any(file.endswith(TSV) for file in present):
        has += f"; a .tsv with both sides is found by the name {base}.tsv"
    raise MissingText(f"There is no {name} (nor {name}.gz, {name}.zst) in {folder}; {has}.", folder)


def _present(folder: Path, name: str) -> Path | None:
    """The file of this name, plain or compressed, if there is one."""
    paths = (folder / f"{name}{suffix}" for suffix in ("", ".gz", ".zst"))
    return next((path for path in paths if path.is_file()), None)


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, without their newline and otherwise unchanged.

    Only `\\n` and `\\r\\n` end a line: other Unicode separators (U+2028, U+0085, ...) occur inside
    real sentences, and splitting there would misalign the two sides of a corpus.
    """
    with open_lines(path) as stream:
        yield from _decoded(stream, str(path))


def read_stream(stream: BinaryIO, name: str) -> Iterator[str]:
    """The lines of an open binary stream such as standard input; `name` is used in errors."""
    yield from _decoded(bounded(stream, name), name)


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, raw in enumerate(lines, start=1):
        yield _decode(raw, name, number)


def read_pairs(data: DataConfig, name: str) -> Iterator[tuple[str, str]]:
    """The sentence pairs of a corpus: `name.source` and `name.target` in data.dir, a TSV or a TMX.

    That file is `name`, or `name.tsv` or `name.tmx` where neither of the two files exists.
    data.columns are the languages of the columns of a TSV; by default its header line names them,
    or there are two, source and target. Without a source language (a language model) each line of
    `name.target` has an empty source.
    """
    return (pair for chunk in read_chunks(data, name) for pair in zip(*chunk.decode(), strict=True))


def read_chunks(data: DataConfig, name: str) -> Iterator[LineChunk]:
    """The corpus that `read_pairs` reads, in chunks of lines."""
    files, picked, header = _find(data, name)
    names, start = tuple(map(str, files)), 2 if header else 1
    first = start
    sides = [_lines(file, header) for file in files]
    if names[0].endswith(TMX):
        sides = [_tmx_lines(files[0], data.source, data.target)]
    rows = zip_longest(*sides)
    while some := list(_of_a_chunk(rows)):
        parts = [[line for line in lines if line is not None] for lines in zip(*some, strict=True)]
        counts = list(map(len, parts))
        if min(counts) < max(counts):
            for file, lines in zip(names, parts, strict=True):
                _decode_lines(b"".join(lines), file, first)  # report a damaged line first
            one, other = map(_count_lines, files)
            raise InputError(
                f"{names[0]} has {one:,} lines but {names[1]} has {other:,}; line n of one must be "
                "the translation of line n of the other."
            )
        yield LineChunk(names, tuple(map(b"".join, parts)), first, picked)
        first += counts[0]
    if first == start:
        raise InputError(f"The corpus {name!r} in {data.dir} is empty; it needs at least one line.")


def count_pairs(data: DataConfig, name: str) -> int:
    """The number of pairs of a corpus, without decoding them."""
    found = _find(data, name)
    if found.files[0].name.endswith(TMX):
        return sum(1 for _ in _tmx_lines(found.files[0], data.source, data.target))
    return _count_lines(found.files[0]) - found.header


def _count_lines(path: Path) -> int:
    with open_lines(path) as stream:
        return sum(1 for _ in stream)


class _Found(NamedTuple):
    """The files of a corpus; for a TSV the places of its columns, and whether it has a header.

    A TMX is read as a TSV of two columns.
    """

    files: list[Path]
    columns: tuple[int, int] | None = None
    header: bool = False


def _find(data: DataConfig, name: str) -> _Found:
    """The files of a corpus: a TSV or TMX, or one file for each language."""
    folder, languages = Path(data.dir), [side for side in (data.source, data.target) if side]
    path = locate(folder, name) if data.source and name.endswith((*TSV, *TMX)) else None
    if data.source and not any(_present(folder, f"{name}.{language}") for language in languages):
        path = path or _present(folder, f"{name}.tsv") or _present(folder, f"{name}.tmx")
    if path:
        return _Found([path], (0, 1)) if path.name.endswith(TMX) else _tsv(path, data)
    return _Found([locate(folder, name, language) for language in languages])


def _tsv(path: Path, data: DataConfig) -> _Found:
    """A TSV and its columns: data.columns, or those of its header, or source and target.

    Its first line is a header if two of its cells are the two languages.
    """
    source, target, named = data.source, data.target, data.columns
    with open_lines(path) as stream:
        cells = _decode(next(iter(stream), b""), str(path), 1).split("\t")
    by_header = places(cells, source, target)
    picked = places(named, source, target) if named else by_header or (0, 1)
    languages = [cell for cell in cells if language_of(cell) in FUNCTION_WORDS]
    others = by_header is None and len(languages) > 1 and {source, target} & {*languages}
    if picked is None or by_header not in (None, picked) or (others and not named):
        columns = f" and data.columns = {list(named)}" if named else ""
        raise InputError(
            f"The first line of {path} names the columns {', '.join(cells)}, but data.source = "
            f"{source!r}, data.target = {target!r}{columns}; correct the settings or the line."
        )
    return _Found([path], picked, by_header is not None)


def _lines(path: Path, header: bool = False) -> Iterator[bytes]:
    with open_lines(path) as stream:
        yield from islice(stream, int(header), None)


def _tmx_lines(path: Path, source: str, target: str) -> Iterator[bytes]:
    """The pairs of a TMX as lines of a TSV; its segments have neither tabs nor line breaks."""
    from kutta.data.tmx import read_tmx  # lxml is loaded only for such files

    count = 0
    with open_stream(path) as stream:
        blocks = iter(partial(stream.read, BLOCK), b"")
        for one, other in read_tmx(blocks, str(path), source, target):
            yield f"{one}\t{other}\n".encode()
            count += 1
    if count == 0:
        raise InputError(
            f"{path} has no segments in both {source!r} and {target!r}; set data.source and "
            "data.target to languages that it has."
        )


def _of_a_chunk(rows: Iterator[tuple[bytes | None, ...]]) -> Iterator[tuple[bytes | None, ...]]:
    """The rows of the next chunk: ROWS, or fewer if their lines are very long."""
    size = 0
    for row in islice(rows, ROWS):
        yield row
        size += sum(map(len, filter(None, row)))
        if size > CHUNK_BYTES:
            return


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
