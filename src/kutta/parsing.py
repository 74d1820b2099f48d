"""The one reader of JSON and the one of TOML: limits on size, depth and digits, one sentence each.

Documents may be of any origin: downloaded, edited by hand, cut off, or made to do harm.
"""

import json
import os
import re
import stat
import tomllib
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from kutta.errors import InputError
from kutta.limits import DEPTH, DIGITS, DOCUMENT_BYTES, RECORD_BYTES

# A string, a comment of TOML, or a bracket: brackets in the first two do not nest anything.
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_TOML_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|""?(?!"))*+(?:""")?|\'\'\'(?:[^\']|\'\'?(?!\'))*+(?:\'\'\')?'
    r'|"(?:[^"\\\n]|\\.)*+"?|\'[^\'\n]*+\'?|#[^\n]*+|[\[\]{}]',
    re.DOTALL,
)
# a.b.c ...: the time of tomllib grows with the square of its parts.
_LONG_KEY = re.compile(
    rf"""(?<![\w"'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEPTH},}}"""
)


class DocumentError(ValueError):
    """Text that is not a document, or one beyond the limits; the message says why."""


def parse_json(text: str) -> Any:
    """The value of a JSON text; a DocumentError says what is wrong."""
    _check_depth(text, _JSON_TOKEN)
    try:
        return json.loads(text, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise DocumentError(f"is not readable as JSON: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text; a DocumentError says what is wrong."""
    _check_depth(text, _TOML_TOKEN)
    if _LONG_KEY.search(text):
        raise DocumentError(f"has a key of more than {DEPTH} parts")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DocumentError(f"is not readable as TOML: {error}") from None
    except ValueError:  # Python's own limit, of thousands of digits
        raise DocumentError(_TOO_MANY) from None
    _check_values(values)
    return values


def read_document(path: Path) -> str:
    """The text of a small file; an OSError, or a DocumentError that says what is wrong."""
    with open(path, "rb", opener=_open_now) as file:
        raw = file.read(DOCUMENT_BYTES + 1)
    if len(raw) > DOCUMENT_BYTES:
        raise DocumentError(f"has more than {DOCUMENT_BYTES >> 20} MB")
    return _decoded(raw)


def read_json(path: Path) -> Any:
    """The value of a JSON file; an OSError, or a DocumentError that says what is wrong."""
    return parse_json(read_document(path))


def read_table(path: Path, remedy: str) -> dict[str, Any]:
    """The object in a JSON file; an InputError says what is wrong, and ends in the remedy."""
    try:
        values = read_json(path)
        if not isinstance(values, dict):
            raise DocumentError("does not contain an object")
    except DocumentError as error:
        raise InputError(f"{path} {error}; {remedy}.") from None
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}; {remedy}.") from None
    return cast(dict[str, Any], values)


def record_line(record: Mapping[str, Any]) -> str:
    """A record as a line of JSON that ends in a checksum of all before it."""
    text = json.dumps(record)
    return f'{text[:-1]}, "{_SUM}": "{_sum(text)}"}}\n'


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file with one per line; a last line truncated by a crash is skipped.

    Each has a `kind`, which is text, and a `step`, a number. Either all have a checksum, or none,
    as in files of earlier versions.
    """
    try:
        with open(path, "rb", opener=_open_now) as file:
            number, with_sums = 1, None
            while raw := file.readline(RECORD_BYTES):
                if raw.strip():
                    try:
                        record, has_sum = _record(raw)
                        if has_sum is not (has_sum if with_sums is None else with_sums):
                            raise DocumentError("has no checksum, or others have none")
                        with_sums = has_sum
                        yield record
                    except DocumentError as error:
                        if not raw.endswith(b"\n") and not file.read(1):
                            return
                        raise InputError(
                            f"{path}, line {number} {error}; correct or remove that line."
                        ) from None
                number += 1
    except OSError as error:
        raise InputError(
            f"Cannot read {path}: {error.strerror or error}; check its permissions."
        ) from None


_SUM = "crc32"


def _sum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _record(raw: bytes) -> tuple[dict[str, Any], bool]:
    """The record of a line, and whether it has a checksum, which is checked."""
    value = parse_json(_decoded(raw))
    if not isinstance(value, dict):
        raise DocumentError("is not a record of training, with a kind and a step")
    record = cast(dict[str, Any], value)
    stated = record.pop(_SUM, None)
    if stated is not None and stated != _sum(json.dumps(record)):
        raise DocumentError("is damaged: it does not match its checksum")
    if isinstance(record.get("kind"), str) and type(record.get("step")) is int:
        return record, stated is not None
    raise DocumentError("is not a record of training, with a kind and a step")


def _open_now(name: str, flags: int) -> int:
    """Open a file, or the pipe of a shell, but never wait for a writer that may not come."""
    handle = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or (stat.S_ISFIFO(mode) and name.startswith(("/dev/", "/proc/"))):
        os.set_blocking(handle, True)
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(21, "it is a folder", name)
    raise OSError(22, "it is not an ordinary file", name)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError(f"is not valid UTF-8 (byte {error.start + 1})") from None


_TOO_MANY = f"has a number of more than {DIGITS} digits"


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > DIGITS:
        raise DocumentError(_TOO_MANY)
    return int(digits)


def _check_depth(text: str, token: re.Pattern[str]) -> None:
    """Reject tables in tables in tables ... before a parser goes through them by recursion."""
    depth = 0
    for found in token.finditer(text):
        mark = found.group()
        depth += (mark in ("[", "{")) - (mark in ("]", "}"))
        if depth > DEPTH:
            raise DocumentError(f"has more than {DEPTH} tables or lists in each other")


def _check_values(values: dict[str, Any]) -> None:
    """Reject what TOML can write in other ways: deep tables by dotted keys, and huge numbers."""
    level: list[Any] = [values]
    for _ in range(DEPTH + 1):
        inside: list[Any] = []
        for value in level:
            if isinstance(value, int) and abs(value) >= 10**DIGITS:
                raise DocumentError(_TOO_MANY)
            if isinstance(value, dict):
                inside += cast(dict[str, Any], value).values()
            elif isinstance(value, list):
                inside += cast(list[Any], value)
        level = inside
        if not level:
            return
    raise DocumentError(f"has more than {DEPTH} tables or lists in each other")
