"""Translation memories: missing segments are filled, the rest stays."""

from pathlib import Path

import pytest

from kutta.documents.formats import Job, translate_file
from kutta.errors import InputError
from tests.documents.translators import Dictionary, fail, upper

MEMORY = """<?xml version='1.0' encoding='UTF-8'?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header srclang="en"/>
  <body>
    <tu tuid="1">
      <note>a note</note>
      <tuv xml:lang="en-GB">
        <seg>Press <bpt i="1">&lt;b&gt;</bpt>it<ept i="1">&lt;/b&gt;</ept> or <hi>that</hi>.</seg>
      </tuv>
    </tu>
    <tu>
      <tuv xml:lang="en"><seg>one</seg></tuv>
      <tuv xml:lang="de"><seg>eins</seg></tuv>
    </tu>
    <tu>
      <tuv xml:lang="en"><seg>two &amp; three</seg></tuv>
      <tuv xml:lang="de"><prop type="x">y</prop><seg> </seg></tuv>
    </tu>
    <tu>
      <tuv xml:lang="fr"><seg>seul</seg></tuv>
    </tu>
  </body>
</tmx>"""


def test_missing_segments_are_filled(tmp_path: Path) -> None:
    remark, new = translated(tmp_path, MEMORY)
    assert remark == "2 missing segments filled; 1 have no segment in en"
    filled = """PRESS <bpt i="1">&lt;b&gt;</bpt>IT<ept i="1">&lt;/b&gt;</ept> OR <hi>THAT</hi>."""
    assert f'<tuv xml:lang="de"><seg>{filled}</seg></tuv>' in new
    assert '<prop type="x">y</prop><seg>TWO &amp; THREE</seg>' in new
    for line in MEMORY.splitlines():
        assert line in new or "<seg> </seg>" in line


def test_text_between_codes_is_found_in_its_sentence(tmp_path: Path) -> None:
    seg = 'The <bpt i="1">b</bpt>dog<ept i="1">/b</ept> runs.'
    text = f'<tmx><tu><tuv xml:lang="en"><seg>{seg}</seg></tuv></tu></tmx>'
    known = {"The dog runs.": "Der Hund läuft.", "dog": "Hund."}
    new = translated(tmp_path, text, Dictionary(known))[1]
    assert 'Der <bpt i="1">b</bpt>Hund<ept i="1">/b</ept> läuft.' in new


def test_a_full_memory_is_not_changed(tmp_path: Path) -> None:
    full = MEMORY.replace("en-GB", "de").replace("<seg> </seg>", "<seg>zwei</seg>")
    assert translated(tmp_path, full, fail)[1] == full


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not valid XML"),
        (MEMORY[:-20], "is not valid XML"),
        ("<html/>", "has the root element 'html'"),
        (
            '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
            '<tmx><tu><tuv xml:lang="en"><seg>&x;</seg></tuv></tu></tmx>',
            "uses XML entities of its own",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        translated(tmp_path, text)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.tmx"]


def translated(folder: Path, text: str, translate=upper) -> tuple[str, str]:
    (folder / "mine.tmx").write_text(text, encoding="utf-8")
    remark = translate_file(folder / "mine.tmx", folder / "new.tmx", Job(translate, "en", "de"))
    return remark, (folder / "new.tmx").read_text(encoding="utf-8")
