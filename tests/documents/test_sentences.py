"""Sentences of text: where they end, and that nothing between them changes."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kutta.documents.sentences import LONGEST, SplitText, split_text, translate_text

# Each text with | where a sentence ends and the next begins.
BOUNDARIES = [
    ("en", "Dr. Smith met Mr. Jones at 5 p.m. on Monday.| He paid $3.50 to J. K. Rowling."),
    ("en", "It was 5 p.m.| They left.| The U.S. economy grew in the U.S. Senate."),
    ("en", '"Is it true?" she asked.| Yes!|  See Fig. 3 and sec. 2.1, e.g. this one.'),
    ("en", "It ended at Kutta Inc.| They left...| And then came back."),
    ("en", "He said no.| Then no. 5 came.| Visit www.example.com. or write."),
    ("en", "(See it.)| [Or this.]| He said “Go.”| Then he left?!| Yes."),
    ("en", "It costs approx. 3 Euro.| 12 people came."),
    ("en-US", "Mr. Smith came.| He saw Mrs. Smith."),
    ("de", "Am 3. Oktober 1990 kam Dr. Müller z. B. nach Berlin.| Das war ca. 10 Uhr."),
    ("de", "Er sagte: „Ich komme.“| Dann ging er bzw. lief.| Das 19. Jahrhundert war lang."),
    ("de", "Er wohnt im 2. Stock.| Sie ist 12.| Er nicht.| Nr. 5 lebt.| Die Fa. Meier auch."),
    ("de", "Hunde, Katzen usw.| Das genügt.| »Ja.«| Er kam.| »Nein!«"),
    ("fr", "M. Dupont est arrivé à 10 h.| Il a vu Mme. Curie et le Dr. Martin."),
    ("fr", "« Est-ce vrai ? » demanda-t-elle.| Oui !| « Non. »| Cf. p. 3, etc.| Le no. 5 vit."),
    ("ro", "Dl. Popescu locuiește pe str. Lungă nr. 5.| A venit la ora 10."),
    ("ro", "D-na. Ionescu, dr. Pop ș.a.m.d. au plecat.| Art. 5 alin. 2 din lege."),
    ("zh", "你好。|再见！|他来了。"),
    ("hi", "यह एक है।| वह दो है।"),
    ("xx", "Uno dos.| Tres Dr. Cuatro.| Cinco."),
]


@pytest.mark.parametrize(("language", "marked"), BOUNDARIES)
def test_sentences_end_where_a_reader_ends_them(language: str, marked: str) -> None:
    expected = [sentence.strip() for sentence in marked.split("|")]
    assert split_text(marked.replace("|", ""), language).sentences == expected


def test_line_breaks_and_spacing_stay() -> None:
    text = "  First one.  Second one.\r\n\r\n\tThird\u00a0one. \n\n***\n- an item\n1. Item\n42%\n"
    translated = translate_text(text, upper, "en")
    assert translated.text == text.upper()
    assert [pair.source for pair in translated.pairs] == [
        "First one.", "Second one.", "Third\u00a0one.", "an item", "Item",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("- One.\n  • Two.\n* Three.", ["One.", "Two.", "Three."]),
        ("-Who is there? – Nobody.", ["Who is there?", "Nobody."]),
        ("*Not* a list. -5 degrees.", ["*Not* a list.", "-5 degrees."]),
    ],
)
def test_dashes_of_lists_and_speakers_are_between_sentences(
    text: str, sentences: list[str]
) -> None:
    split = split_text(text, "en")
    assert split.sentences == sentences
    assert rebuilt(split) == text


def test_pairs_are_aligned_in_both_texts() -> None:
    text = " One dog. Two cats!\nThree.\n"
    translated = translate_text(text, lambda batch: [f"<{one}>" for one in batch], "en")
    assert translated.text == " <One dog.> <Two cats!>\n<Three.>\n"
    for pair in translated.pairs:
        assert text[pair.source_start :].startswith(pair.source)
        assert translated.text[pair.target_start :].startswith(pair.target)
    assert [pair.source for pair in translated.pairs] == ["One dog.", "Two cats!", "Three."]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "---\n", "3.14", "\u2028"])
def test_text_without_words_is_not_sent(text: str) -> None:
    def fail(batch: list[str]) -> list[str]:
        raise AssertionError(batch)

    assert translate_text(text, fail) == (text, [])


def test_sentences_without_spaces_get_one_if_the_translation_needs_it() -> None:
    english = {"你好。": "Hello.", "再见！": "Goodbye!"}
    assert (
        translate_text("你好。再见！", lambda b: [english[s] for s in b]).text == "Hello. Goodbye!"
    )


def test_a_long_sentence_is_split_at_its_clauses() -> None:
    clause = "and the dog runs over the wet grass of the old park"
    text = ", ".join([clause] * 40) + "."
    split = split_text(text, "en")
    assert max(map(len, split.sentences)) <= LONGEST
    assert all(one.endswith((",", ".")) for one in split.sentences)
    assert rebuilt(split) == text


def test_the_caller_says_what_fits() -> None:
    text = "one two three four five six seven."
    split = split_text(text, "en", lambda sentence: len(sentence.split()) <= 2)
    assert split.sentences == ["one two", "three four", "five", "six seven."]
    assert rebuilt(split) == text


def test_an_accent_stays_with_its_letter() -> None:
    split = split_text("e\u0301" * LONGEST)
    assert all(one.startswith("e") for one in split.sentences)


def test_accents_without_an_end_are_split_somewhere() -> None:
    split = split_text("a" + "\u0301" * 20_000)
    assert max(map(len, split.sentences)) <= LONGEST


def test_a_wrong_number_of_translations_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="0 translations of 1 sentences"):
        translate_text("One.", lambda batch: [])


@given(st.text(st.sampled_from("aB .!?…。\"'»«()\n\r\t\u2028\u00a0é1,;\ud800\u0301"), max_size=60))
def test_nothing_is_lost_or_changed(text: str) -> None:
    for language in ("en", "de", "fr", "ro", "zh", ""):
        split = split_text(text, language, lambda sentence: len(sentence) <= 8)
        assert rebuilt(split) == text
        assert len(split.gaps) == len(split.sentences) + 1
        for sentence in split.sentences:
            assert sentence == sentence.strip()
            assert not set(sentence) & set("\n\r\u2028")
            assert len(sentence) <= 8


@pytest.mark.parametrize(
    "unit", ["a", "a. ", ".", "(", '" ', "A. b ", "。", " ", "x.\n", ". ", "\u0301", "- "]
)
def test_time_grows_with_the_length_only(unit: str) -> None:
    begin = time.process_time()
    text = unit * (100_000 // len(unit))
    assert rebuilt(split_text(text, "en")) == text
    assert time.process_time() - begin < 3


def upper(batch: list[str]) -> list[str]:
    return [sentence.upper() for sentence in batch]


def rebuilt(split: SplitText) -> str:
    between = zip(split.gaps, [*split.sentences, ""], strict=True)
    text = "".join(gap + sentence for gap, sentence in between)
    assert split.join(split.sentences).text == text
    return text
