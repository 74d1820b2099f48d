"""Message catalogues: what is filled, what is left, and that placeholders are kept."""

from collections.abc import Callable
from pathlib import Path

import polib
import pytest

from kutta.documents.formats import Job, translate_file
from kutta.documents.placeholders import keeps_placeholders, placeholders
from kutta.errors import InputError
from tests.documents.translators import fail, upper

HEADER = r"""# A catalogue
msgid ""
msgstr ""
"Language: de\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=3; plural=(n == 1 ? 0 : 1);\n"

"""
CATALOGUE = (
    HEADER
    + r"""
#. for the menu
#: main.c:12
msgctxt "menu"
msgid "open"
msgstr ""

msgctxt "state"
msgid "open"
msgstr "offen"

#, python-format
msgid "hello %(NAME)S, {0} at 5%% &AMP; <B>more</B>"
msgstr ""

#, python-format
msgid "hello %(name)s"
msgstr ""

msgid "%D file"
msgid_plural "%D files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

#, fuzzy
msgid "old"
msgstr "alt"

msgid ""
"\n"
"two lines. here\n"
"and there\n"
msgstr ""

#~ msgid "gone"
#~ msgstr ""
"""
)


def test_untranslated_messages_are_filled_and_fuzzy(tmp_path: Path) -> None:
    remark, new = translated(tmp_path, CATALOGUE, upper)
    menu = new.find("open", msgctxt="menu")
    assert (menu.msgstr, menu.fuzzy) == ("OPEN", True)
    assert (menu.comment, menu.occurrences) == ("for the menu", [("main.c", "12")])
    state = new.find("open", msgctxt="state")
    assert (state.msgstr, state.fuzzy) == ("offen", False)
    filled = new.find("hello %(NAME)S, {0} at 5%% &AMP; <B>more</B>")
    assert filled.msgstr == "HELLO %(NAME)S, {0} AT 5%% &AMP; <B>MORE</B>"
    assert filled.flags == ["python-format", "fuzzy"]
    assert new.find("hello %(name)s").msgstr == "HELLO %(name)s"
    plural = new.find("%D file")
    assert plural.msgstr_plural == {0: "%D FILE", 1: "%D FILES", 2: "%D FILES"}
    assert new.find("old").msgstr == "alt"
    assert new.find("\ntwo lines. here\nand there\n").msgstr == "\nTWO LINES. HERE\nAND THERE\n"
    assert [entry.msgid for entry in new.obsolete_entries()] == ["gone"]
    assert remark == "5 of 5 untranslated messages filled, marked fuzzy"


def test_placeholders_that_a_model_loses_are_kept(tmp_path: Path) -> None:
    """A number stands for a value; tags and escapes stay where their text is."""

    def german(sentences: list[str]) -> list[str]:
        known = {"You have 21 dogs.": "Du hast 21 Hunde.", "Open the file?": "Die Datei öffnen?"}
        alone = {"the file": "die Datei.", "one": "eins.", "two": "zwei."}
        return [(known | alone).get(sentence, "Hm.") for sentence in sentences]

    text = HEADER + "".join(
        f'msgid "{one}"\nmsgstr ""\n\n'
        for one in ("You have %(n)d dogs.", "Open <b>the file</b>?", "one &lt; two<br>")
    )
    _, new = translated(tmp_path, text, german)
    assert new.find("You have %(n)d dogs.").msgstr == "Du hast %(n)d Hunde."
    assert new.find("Open <b>the file</b>?").msgstr == "<b>Die Datei</b> öffnen?"
    assert new.find("one &lt; two<br>").msgstr == "eins &lt; zwei<br>"


def test_a_message_with_other_placeholders_stays_untranslated(tmp_path: Path) -> None:
    text = HEADER + 'msgid "dogs"\nmsgstr ""\n'
    remark, new = translated(tmp_path, text, lambda some: [f"%d {one}" for one in some])
    assert (new.find("dogs").msgstr, new.find("dogs").fuzzy) == ("", False)
    assert remark == (
        "0 of 1 untranslated messages filled, marked fuzzy; 1 lost a placeholder and stay "
        "untranslated"
    )


def test_a_finished_catalogue_stays(tmp_path: Path) -> None:
    text = HEADER.replace("# A catalogue", "#") + 'msgid "one"\nmsgstr "eins"\n'
    translated(tmp_path, text, fail)
    assert (tmp_path / "new.po").read_text() == text


def test_a_language_with_one_plural_form(tmp_path: Path) -> None:
    text = HEADER.replace("nplurals=3", "nplurals=1").replace("de", "ja") + (
        'msgid "a file"\nmsgid_plural "files"\nmsgstr[0] ""\n'
    )
    _, new = translated(tmp_path, text, upper, "ja")
    assert new.find("a file").msgstr_plural == {0: "FILES"}


def test_a_catalogue_of_another_language_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is for the language 'de' .* into 'fr'"):
        translated(tmp_path, CATALOGUE, upper, "fr")


@pytest.mark.parametrize(
    "text",
    [
        "msgid",
        "\x00",
        "no catalogue at all",
        'msgstr "a"\n',
        'msgid "a\nmsgstr ""\n',
        'msgid a\nmsgstr ""\n',
        'msgid "a"\nmsgstr "b" c\n',
        'msgid "a\\"\nmsgstr ""\n',
    ],
)
def test_a_damaged_catalogue_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "new.po").write_text("before")
    with pytest.raises(InputError, match=r"mine\.po is not a valid PO file \(.*\); check it"):
        translated(tmp_path, text, upper)
    assert (tmp_path / "new.po").read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_catalogue_that_is_not_in_its_encoding(tmp_path: Path) -> None:
    (tmp_path / "mine.po").write_bytes(HEADER.encode() + b'msgid "\xff\xfe"\nmsgstr ""\n')
    with pytest.raises(InputError, match="is not a valid PO file"):
        translate_file(tmp_path / "mine.po", tmp_path / "new.po", Job(upper, "en", "de"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100% sure, 5 % of it", []),
        ("%d of %lu, %5.2f %-3s %1$s %2$d", ["%d", "%lu", "%5.2f", "%-3s", "%1$s", "%2$d"]),
        ("%(count)d %(a)s %%", ["%(count)d", "%(a)s", "%%"]),
        ("{} {0} {name} {x!r:>5} ${v} {{v}}", ["{}", "{0}", "{name}", "{x!r:>5}", "${v}", "{{v}}"]),
        ("&amp; &#39; R&D <b>x</b> a < b", ["&amp;", "&#39;", "<b>", "</b>"]),
        (r"a\nb %name%", [r"\n", "%name%"]),
    ],
)
def test_placeholders(text: str, expected: list[str]) -> None:
    assert list(placeholders(text).elements()) == expected


def test_placeholders_may_change_their_order_and_nothing_else() -> None:
    assert keeps_placeholders("%(a)s of {0}", "{0} von %(a)s")
    assert not keeps_placeholders("%(a)s", "%(b)s")
    assert not keeps_placeholders("%d", "%d %d")
    assert not keeps_placeholders("one", "%s")


def translated(
    folder: Path, text: str, translate: Callable[[list[str]], list[str]], target: str = "de"
) -> tuple[str, polib.POFile]:
    (folder / "mine.po").write_text(text, encoding="utf-8")
    remark = translate_file(folder / "mine.po", folder / "new.po", Job(translate, "en", target))
    return remark, polib.pofile(str(folder / "new.po"))
