"""`kutta translate` of documents, with a real model and in one process."""

import subprocess
import sys
from pathlib import Path

import polib
import pytest

from kutta.documents import formats
from kutta.documents.formats import FORMATS, Job, translate_file
from kutta.errors import InputError
from tests.documents.translators import upper
from tests.test_cli import is_one_sentence, kutta

PAGE = '<p title="ba be">Ba <b>bi</b> do.</p><script>ba()</script>\n'


def test_a_file_is_given_after_the_model(toy_run: Path, tmp_path: Path) -> None:
    """A page, a catalogue and plain text, each through the command."""
    (tmp_path / "page.html").write_text(PAGE)
    answer = kutta("translate", toy_run, "page.html", "--output", "new.html", cwd=tmp_path)
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "kutta: new.html: 1 page translated.\n"
    new = (tmp_path / "new.html").read_text()
    assert new != PAGE
    for kept in ("<p title=", "<b>", "</b>", "</p><script>ba()</script>\n"):
        assert kept in new
    (tmp_path / "a.po").write_text('msgid ""\nmsgstr ""\n\nmsgid "ba be"\nmsgstr ""\n')
    answer = kutta("translate", toy_run, "--input", "a.po", cwd=tmp_path)
    assert polib.pofile(answer.out)[0].fuzzy
    assert "1 of 1 untranslated messages filled" in answer.err
    (tmp_path / "text").write_text("ba\n\nbe bi\n")
    given = kutta("translate", toy_run, "text", cwd=tmp_path)
    assert given.out == kutta("translate", toy_run, "--input", "text", cwd=tmp_path).out
    assert given.out.count("\n") == 3


def test_what_cannot_be_done_with_a_document(toy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.po").write_text("msgid")
    (tmp_path / "new.po").write_text("before")
    (tmp_path / "page.html").write_text(PAGE)
    for given, words in {
        ("bad.po", "--output", "new.po"): ("bad.po is not a valid PO file",),
        ("none.srt",): ("Cannot read none.srt",),
        ("page.html", "--n-best", 2): ("--n-best is for plain text",),
        ("page.html", "--json"): ("--json is for plain text",),
        ("page.html", "--output", "."): ("is a folder",),
    }.items():
        is_one_sentence(kutta("translate", toy_run, *given, cwd=tmp_path), *words)
    assert (tmp_path / "new.po").read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 3


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    for suffix, chosen in FORMATS.items():
        if not chosen.library:
            continue
        with pytest.raises(InputError, match=r"pip install 'kutta\[documents\]'"):
            translate_file(tmp_path / f"a{suffix}", tmp_path / "b", Job(upper, "en", "de"))


def test_every_format_has_its_function() -> None:
    for chosen in FORMATS.values():
        assert callable(chosen.translator())


def test_an_unknown_suffix_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a.pdf is of no known format; give a file whose name"):
        translate_file(tmp_path / "a.pdf", tmp_path / "b.pdf", Job(upper, "en", "de"))


def test_the_package_imports_no_torch() -> None:

    names = ", ".join(f"kutta.documents.{m}" for m in sorted({f.module for f in FORMATS.values()}))
    code = f"import sys, {names}, kutta.documents.lines; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
