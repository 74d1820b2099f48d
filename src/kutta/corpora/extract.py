"""Text from archives, as a stream: nothing is unpacked to disk, and member names are checked."""

import gzip
import html
import io
import lzma
import posixpath
import re
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import IO, BinaryIO, cast

from kutta.corpora.recipes import Part
from kutta.errors import InputError

MAX_LINE = 1 << 20  # bytes of a line; a longer one means a damaged or malicious file
MAX_TEXT = 1 << 35  # bytes of a text; the largest, 10^9 French, has 4 GB
BUFFER = 1 << 20

DAMAGE = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, OSError)


def read_rows(part: Part, archives: Mapping[str, Path]) -> Iterator[tuple[bytes, ...]]:
    """The parallel lines of a part, one column per language.

    Two texts of one archive are read through two streams, so memory is bounded.
    """
    places = sorted({str(archives[member.source]) for member in part.values()})
    try:
        with ExitStack() as stack:
            columns = [
                _lines(stack.enter_context(_open(archives[source], path)), path or source)
                for source, path in part.values()
            ]
            for number, row in enumerate(zip_longest(*columns)):
                if None in row:
                    short = list(part)[row.index(None)]
                    raise InputError(
                        f"In {', '.join(places)} the text in {short!r} has only {number:,} lines "
                        "but its translation has more; delete the file and run the same command "
                        "again."
                    )
                yield row
    except DAMAGE as error:
        raise InputError(
            f"{', '.join(places)} is damaged or truncated ({error}); delete it and run the same "
            "command to download it again."
        ) from error


def _lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The lines of a text without their newline, or the segments of an .sgm file."""
    if name.endswith(".sgm"):
        return _segments(stream, name)
    return _plain_lines(stream, name)


def _plain_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    total = 0
    while line := stream.readline(MAX_LINE + 1):
        total += len(line)
        if len(line) > MAX_LINE or total > MAX_TEXT:
            raise InputError(
                f"{name} has a line of more than {MAX_LINE:,} bytes or more than {MAX_TEXT:,} "
                "bytes in all; this is not the published text."
            )
        yield line.removesuffix(b"\n")


def _segments(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The text of every <seg>, with entities resolved and single spaces, as in sacrebleu.

    These files are not valid XML: a bare & occurs. So only `&name;` is an entity.
    """
    raw = stream.read(MAX_LINE * 64 + 1)
    if len(raw) > MAX_LINE * 64:
        raise InputError(f"{name} is too long for a test set; this is not the published text.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not valid UTF-8 (byte {error.start + 1:,}).") from error
    for segment in re.findall(r"<seg\b[^>]*>(.*?)</seg>", text, re.DOTALL | re.IGNORECASE):
        resolved = re.sub(r"&#?\w+;", lambda entity: html.unescape(entity[0]), segment)
        yield " ".join(resolved.split()).encode()


@contextmanager
def _open(archive: Path, path: str) -> Generator[BinaryIO]:
    """The uncompressed bytes of a member; without a path, those of the file itself."""
    with ExitStack() as stack:
        if not path:
            raw: IO[bytes] = stack.enter_context(open(archive, "rb"))
        elif archive.suffix == ".zip":
            raw = stack.enter_context(_zip_member(archive, path))
        else:
            raw = stack.enter_context(_tar_member(archive, path))
        if (path or archive.name).endswith(".gz"):
            raw = cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=raw)))
        yield cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, raw), BUFFER))


@contextmanager
def _tar_member(archive: Path, path: str) -> Generator[IO[bytes]]:
    with tarfile.open(archive) as tar:
        for info in tar:
            if _safe(info.name, archive) == path:
                if not info.isfile():
                    raise InputError(f"{path} in {archive} is not a plain file; do not use it.")
                yield cast(IO[bytes], tar.extractfile(info))
                return
    raise _missing(archive, path)


@contextmanager
def _zip_member(archive: Path, path: str) -> Generator[IO[bytes]]:
    with zipfile.ZipFile(archive) as zipped:
        names = {_safe(name, archive): name for name in zipped.namelist()}
        if path not in names:
            raise _missing(archive, path)
        if zipped.getinfo(names[path]).flag_bits & 1:
            raise InputError(f"{path} in {archive} is encrypted; this is not the published file.")
        with zipped.open(names[path]) as member:
            yield member


def _safe(name: str, archive: Path) -> str:
    """The normalised name of a member; one that points outside is rejected."""
    plain = posixpath.normpath(name.replace("\\", "/"))
    if plain.startswith(("/", "../")) or plain == "..":
        raise InputError(
            f"{archive} has a member {name!r} that points outside of it, so it is not the "
            "published file; delete it."
        )
    return plain


def _missing(archive: Path, path: str) -> InputError:
    return InputError(
        f"There is no {path} in {archive}, so it is not the expected file; delete it and run the "
        "same command, or download the right one manually and add --from DIR."
    )
