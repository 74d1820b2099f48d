"""The readers of JSON and TOML: any text gives a value or one reason, and quickly."""

import ast
import json
import os
import re
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kutta import parsing
from kutta.errors import InputError
from kutta.limits import DEPTH, DIGITS, DOCUMENT_BYTES, RECORD_BYTES
from kutta.parsing import DocumentError, parse_json, parse_toml, read_document, read_table
from tests.conftest import ROOT

INTEGERS = st.integers(-(10**DIGITS) + 1, 10**DIGITS - 1)
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)
# Brackets, quotes and escapes, which a count of the depth could get wrong.
MARKS = st.text(alphabet="[]{}\"'\\#=.,: \n1ae-")


@given(VALUES, st.booleans())
def test_every_json_value_comes_back(value: Any, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only)) == value


def has_a_long_number(text: str) -> bool:
    return re.search(rf"\d{{{DIGITS + 1},}}", text) is not None


@given(st.text() | MARKS)
def test_any_text_is_json_for_us_where_it_is_for_python(text: str) -> None:
    assume(not has_a_long_number(text))
    try:
        expected: Any = json.loads(text)
    except ValueError:
        with pytest.raises(DocumentError):
            parse_json(text)
    else:
        assert repr(parse_json(text)) == repr(expected)


@given(st.text() | MARKS)
def test_any_text_is_toml_for_us_where_it_is_for_python(text: str) -> None:
    assume(not has_a_long_number(text))
    try:
        expected = tomllib.loads(text)
    except ValueError:
        with pytest.raises(DocumentError):
            parse_toml(text)
    else:
        assert repr(parse_toml(text)) == repr(expected)


def nested(opening: str, closing: str, depth: int) -> str:
    return opening * depth + closing * depth


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (parse_json, nested("[", "]", 100_000), "in each other"),
        (parse_json, nested('{"a":', "}", DEPTH + 1), "in each other"),
        (parse_json, "[" * 2_000_000, "in each other"),
        (parse_json, "9" * 5000, "digits"),
        (parse_json, f'{{"step": -{"9" * (DIGITS + 1)}}}', "digits"),
        (parse_json, '"' + "\\" * 1_000_001, "JSON"),
        (parse_json, '"' * 1_000_001, "JSON"),
        (parse_toml, "a = " + nested("[", "]", 100_000), "in each other"),
        (parse_toml, "a = " + nested("{a=", "}", 50_000), "in each other"),
        (parse_toml, "a." * 1_000_000 + "a = 1", "parts"),
        (parse_toml, '"a".' * 500_000 + "a = 1", "parts"),
        (parse_toml, "[" + "a . " * 100_000 + "a]", "parts"),
        (parse_toml, "x = {" + "a." * 100_000 + "a = 1}", "parts"),
        (parse_toml, "a = " + "9" * 5000, "digits"),
        (parse_toml, "a = 0x" + "f" * 5000, "digits"),
        (parse_toml, "a" * 3_000_000, "TOML"),
        (parse_toml, "a-" * 1_500_000, "TOML"),
        (parse_toml, "'" * 1_000_001, "TOML"),
        (parse_toml, '"""' * 500_001, "TOML"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "",
)
def test_a_hostile_document_is_refused_at_once(
    parse: Callable[[str], Any], text: str, reason: str
) -> None:
    start = time.perf_counter()
    with pytest.raises(DocumentError, match=reason):
        parse(text)
    assert time.perf_counter() - start < 3


def test_ordinary_documents_are_not_near_the_limits() -> None:
    assert parse_json(nested("[", "]", DEPTH)) is not None
    assert parse_json('{"a": "' + "[" * 100 + '"}') == {"a": "[" * 100}
    assert parse_toml("a = '" + "[" * 100 + "' # " + "{" * 100) == {"a": "[" * 100}
    assert parse_toml("a = [" + "0.5, " * 1000 + "]")["a"] == [0.5] * 1000
    with pytest.raises(DocumentError, match="in each other"):
        parse_toml(f"[{'a.' * 30}a]\n{'b.' * 30}b = 1")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\xfe{}", "not valid UTF-8"),
        (b" " * (DOCUMENT_BYTES + 1), "has more than 4 MB"),
        (b"[1]", "does not contain an object"),
        (b'{"a": 1', "not readable as JSON"),
        (b"", "not readable as JSON"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"state\.json .*{reason}.*; mend it\.$"):
        read_table(path, "mend it")


def test_pipes_devices_and_folders_are_no_documents(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match=r"not an ordinary file|is a folder"):
            read_document(path)
    with pytest.raises(InputError, match="Cannot read"):
        read_table(tmp_path / "pipe", "mend it")
    reading, writing = os.pipe()  # `kutta info <(...)`
    os.write(writing, b"a = 1")
    os.close(writing)
    assert read_document(Path(f"/dev/fd/{reading}")) == "a = 1"
    os.close(reading)


GOOD = b'{"kind": "train", "step": 1}\n'


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\n",
        b"null\n",
        b'{"kind": "train"}\n',
        b'{"kind": 3, "step": 1}\n',
        b'{"kind": "train", "step": true}\n',
        b'{"kind": "train", "step": "1"}\n',
        b'{"kind": "train", "step": ' + b"9" * 5000 + b"}\n",
        b"[" * 10_000 + b"\n",
        b'{"kind": "' + b"x" * RECORD_BYTES + b'"}\n',
    ],
    ids=lambda line: line[:24].decode("latin-1"),
)
def test_a_record_edited_by_hand_is_named_but_a_truncated_end_is_skipped(
    tmp_path: Path, line: bytes
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(GOOD + b"\n" + line + GOOD)
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 3 .*correct or remove that line"):
        list(parsing.read_records(path))
    path.write_bytes(GOOD + line[: RECORD_BYTES - 1].rstrip(b"\n"))
    assert list(parsing.read_records(path)) == [{"kind": "train", "step": 1}]


def test_there_is_one_reader() -> None:
    """No other module parses JSON or TOML, so that the limits hold everywhere."""
    used: set[str] = set()
    for file in (ROOT / "src" / "kutta").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            loads = isinstance(node, ast.Attribute) and ast.unparse(node) in (
                *("json.load", "json.loads", "json.JSONDecoder"),
            )
            if "tomllib" in names or loads:
                used.add(file.name)
    assert used == {"parsing.py"}
