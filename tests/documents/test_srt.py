"""Subtitles: times and numbers stay, text is wrapped again."""

from pathlib import Path

import pytest

from kutta.documents.formats import Job, translate_file
from kutta.documents.srt import wrap
from kutta.errors import InputError
from tests.documents.translators import upper

SUBTITLES = """7
00:00:01,000 --> 00:00:02,500
The dog runs over
the <i>wet grass</i>.

9
00:00:03,000 --> 00:01:00,000
{\\an8}- Who is there?
- Nobody.

10
00:01:01,000 --> 00:01:02,000
<font color="red">1984</font>

"""
EXPECTED = """7
00:00:01,000 --> 00:00:02,500
THE DOG RUNS OVER THE <i>WET GRASS</i>.

9
00:00:03,000 --> 00:01:00,000
{\\an8}- WHO IS THERE?
- NOBODY.

10
00:01:01,000 --> 00:01:02,000
<font color="red">1984</font>

"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_only_text_changes(tmp_path: Path, end: str, mark: str) -> None:
    data = (mark + SUBTITLES.replace("\n", end)).encode()
    assert translated(tmp_path, data) == (mark + EXPECTED.replace("\n", end)).encode()


@pytest.mark.parametrize(
    "data",
    [b"\xff\xfe1", b"hello", b"1\n00:00:01 --> x\ntext\n\n", b"1\n00:00:01,000 -->\n"],
)
def test_damaged_subtitles_are_one_sentence(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputError, match=r"mine\.srt is not valid|is not a valid SRT file"):
        translated(tmp_path, data)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.srt"]


def test_an_empty_file_stays_empty(tmp_path: Path) -> None:
    assert translated(tmp_path, b"") == b""


def test_lines_are_few_and_of_similar_length() -> None:
    assert wrap("one two three") == "one two three"
    assert wrap("aaa bbb ccc ddd", 12) == "aaa bbb\nccc ddd"
    assert wrap("aaa <b x>bbb ccc</b> ddd", 12) == "aaa <b x>bbb\nccc</b> ddd"
    assert wrap("a" * 50, 12) == "a" * 50
    assert wrap("") == ""


def translated(folder: Path, data: bytes) -> bytes:
    (folder / "mine.srt").write_bytes(data)
    translate_file(folder / "mine.srt", folder / "new.srt", Job(upper, "en", "de"))
    return (folder / "new.srt").read_bytes()
