"""TMX as training text: pairs of two languages, and what is refused."""

import gzip
from pathlib import Path

import pytest
import zstandard

from kutta.data.corpus import count_pairs, read_pairs
from kutta.errors import InputError

PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
MEMORY = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>One &amp; two</seg></tuv><tuv xml:lang="de"><seg>Eins</seg></tuv></tu>
<tu><tuv xml:lang="EN-us"><seg>A <hi>big</hi> <ph>&lt;br&gt;</ph>dog,
\tthere</seg></tuv><tuv xml:lang="de-AT"><seg>Hund ä</seg></tuv>
<tuv xml:lang="fr"><seg>x</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>only English</seg></tuv></tu>
<tu><tuv lang="de"><seg>Drei</seg></tuv><tuv lang="en"><seg>Three</seg></tuv></tu>
</body></tmx>
"""
PAIRS = [("One & two", "Eins"), ("A big dog, there", "Hund ä"), ("Three", "Drei")]


@pytest.mark.parametrize("suffix", PACK)
def test_pairs_of_two_languages(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"train.tmx{suffix}").write_bytes(PACK[suffix](MEMORY.encode()))
    for name in ("train", f"train.tmx{suffix}"):
        assert list(read_pairs(tmp_path, name, "en", "de")) == PAIRS
        assert count_pairs(tmp_path, name, "en", "de") == 3
    assert list(read_pairs(tmp_path, "train", "de", "fr")) == [("Hund ä", "x")]


def test_text_files_come_first(tmp_path: Path) -> None:
    for name, text in {"train.tmx": MEMORY, "train.en": "a\n", "train.de": "b\n"}.items():
        (tmp_path / name).write_text(text)
    assert list(read_pairs(tmp_path, "train", "en", "de")) == [("a", "b")]


def test_other_encodings(tmp_path: Path) -> None:
    (tmp_path / "x.tmx").write_bytes(MEMORY.replace("UTF-8", "UTF-16").encode("utf-16"))
    assert list(read_pairs(tmp_path, "x.tmx", "en", "de")) == PAIRS


def test_many_pairs_are_read_in_order(tmp_path: Path) -> None:
    unit = (
        '<tu><tuv xml:lang="en"><seg>{0}</seg></tuv><tuv xml:lang="de"><seg>z{0}</seg></tuv></tu>\n'
    )
    body = "".join(unit.format(number) for number in range(5000))
    (tmp_path / "x.tmx").write_text(f"<tmx><body>{body}</body></tmx>")
    expected = [(str(number), f"z{number}") for number in range(5000)]
    assert list(read_pairs(tmp_path, "x.tmx", "en", "de")) == expected


BOMB = (
    '<!DOCTYPE tmx [<!ENTITY a "aaaaaaaaaa">'
    + "".join(
        f'<!ENTITY {name} "{f"&{before};" * 10}">'
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "]>"
)
UNIT = (
    '<tmx><body><tu><tuv xml:lang="en"><seg>{}</seg></tuv>'
    '<tuv xml:lang="de"><seg>b</seg></tuv></tu></body></tmx>'
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tmx><body>", "is not valid XML"),
        ("no XML", "is not valid XML"),
        ("", "is not valid XML"),
        (UNIT.format("a &b; c"), "is not valid XML"),
        (BOMB + UNIT.format("&i;"), "amplification|uses XML entities of its own"),
        (
            '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + UNIT.format("&x;"),
            "uses XML entities of its own",
        ),
        (
            MEMORY.replace('"en"', '"es"').replace("EN-us", "es"),
            "has no segments in both 'en' and 'de'",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "x.tmx").write_text(text)
    with pytest.raises(InputError, match=reason) as caught:
        list(read_pairs(tmp_path, "x.tmx", "en", "de"))
    assert "x.tmx" in str(caught.value)
    assert "root:" not in str(caught.value)
