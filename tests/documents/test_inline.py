"""Sentences whose parts differ: where the parts are in the translation."""

from hypothesis import given
from hypothesis import strategies as st

from kutta.documents.inline import Part, translate_paragraphs
from tests.documents.translators import Dictionary, upper

BOLD = [Part("The "), Part("red dog", "marked"), Part(" runs.")]


def test_a_part_is_found_in_the_translation_of_its_sentence() -> None:
    german = Dictionary({"The red dog runs.": "Der rote Hund läuft.", "red dog": "Roter Hund."})
    german.known["red dog"] = "Rote Hund."
    assert translate_paragraphs([BOLD], german, "en") == [["Der ", "rote Hund", " läuft."]]
    assert german.asked == ["The red dog runs.", "red dog"]


def test_parts_that_are_not_found_are_translated_by_themselves() -> None:
    known = {"The red dog runs.": "Er läuft.", "red dog": "roter Hund.", "The": "Der."}
    german = Dictionary({**known, "runs.": "läuft."})
    assert translate_paragraphs([BOLD], german, "en") == [["Der ", "roter Hund", " läuft."]]


def test_a_part_is_found_by_most_of_its_words_in_any_form() -> None:
    parts = [Part("Where is "), Part("the old station", "marked"), Part("?")]
    known = {"Where is the old station?": "Wo ist der alte Bahnhof?"}
    part = {"the old station": "Den alten Bahnhof des Bahnhofs."}
    assert translate_paragraphs([parts], Dictionary(known | part)) == [
        ["Wo ist der ", "alte Bahnhof", "?"]
    ]
    part = {"the old station": "Der Zug.", "Where is": "Wo ist"}
    assert translate_paragraphs([parts], Dictionary(known | part)) == [["Wo ist ", "Der Zug", "?"]]


def test_parts_of_another_order_are_translated_by_themselves() -> None:
    parts = [Part("one", "marked"), Part(" and "), Part("two", "marked")]
    known = {"one and two": "zwei und eins", "one": "eins", "two": "zwei", "and": "und"}
    assert translate_paragraphs([parts], Dictionary(known)) == [["eins", " und ", "zwei"]]


def test_a_part_is_a_whole_word() -> None:
    parts = [Part("Manna "), Part("man", "marked"), Part(".")]
    known = {"Manna man.": "Manna, man.", "man": "man"}
    assert translate_paragraphs([parts], Dictionary(known)) == [["Manna, ", "man", "."]]


def test_the_nearest_of_several_places_is_meant() -> None:
    parts = [Part("A man sees the "), Part("man", "marked"), Part(".")]
    known = {"A man sees the man.": "En man ser en man.", "man": "man"}
    assert translate_paragraphs([parts], Dictionary(known)) == [["En man ser en ", "man", "."]]


def test_fixed_parts_stay() -> None:
    parts = [Part("Run "), Part("make all", "fixed"), Part(" now.")]
    known = {"Run make all now.": "Starte make all jetzt."}
    assert translate_paragraphs([parts], Dictionary(known)) == [["Starte ", "make all", " jetzt."]]
    assert translate_paragraphs([parts], upper) == [["RUN ", "make all", " NOW."]]
    assert translate_paragraphs([[Part("All fixed.", "fixed")]], upper) == [["All fixed."]]
    parts = [Part("of "), Part("{}", "fixed"), Part(" dogs")]
    assert translate_paragraphs([parts], upper) == [["OF ", "{}", " DOGS"]]


def test_each_text_is_translated_once() -> None:
    german = Dictionary({"Yes.": "Ja."})
    assert translate_paragraphs([[Part("Yes. Yes.")], [Part("Yes.")]], german) == [
        ["Ja. Ja."],
        ["Ja."],
    ]
    assert german.asked == ["Yes."]


roles = st.sampled_from(["plain", "marked", "fixed"])
parts = st.builds(Part, st.text(st.sampled_from("ab. \n1-"), max_size=12), roles)


@given(st.lists(st.lists(parts, max_size=5), max_size=3), st.booleans())
def test_the_same_text_stays_the_same_text(paragraphs: list[list[Part]], lines: bool) -> None:
    translated = translate_paragraphs(paragraphs, list, lines=lines)
    assert [len(new) for new in translated] == [len(old) for old in paragraphs]
    for new, old in zip(translated, paragraphs, strict=True):
        joined = "".join(part.text for part in old)
        assert "".join(new).split() == joined.split()


@given(st.lists(parts, max_size=5))
def test_fixed_text_never_changes(paragraph: list[Part]) -> None:
    (translated,) = translate_paragraphs([paragraph], upper)
    for new, part in zip(translated, paragraph, strict=True):
        assert part.role != "fixed" or part.text.split() == new.split()
