"""The text is its sentences and gaps, and the layout survives a translation."""

import html
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kutta.server.split import LONGEST, split

TEXT = st.text(alphabet=st.sampled_from(list("ab Zß.!?,\n\r\t 。<>&;\"'x0-é")), max_size=200)


@given(st.one_of(TEXT, st.text(max_size=100)))
def test_gaps_and_sentences_are_the_text(text: str) -> None:
    one = split(text)
    assert one.join(one.sentences) == text


@given(TEXT)
def test_a_sentence_is_on_one_line_and_has_a_letter(text: str) -> None:
    for sentence in split(text).sentences:
        assert sentence == sentence.strip()
        assert "\n" not in sentence
        assert any(character.isalpha() for character in sentence)
        assert len(sentence) <= LONGEST


@given(TEXT)
def test_html_is_kept_but_for_the_spelling_of_characters(text: str) -> None:
    one = split(text, "html")
    assert html.unescape(one.join(one.sentences)) == html.unescape(text)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Smith is here. He came.", ["Dr. Smith is here.", "He came."]),
        ("J. S. Bach wrote it.", ["J. S. Bach wrote it."]),
        ("It costs 3.50 dollars. Yes.", ["It costs 3.50 dollars.", "Yes."]),
        ("He said: “Stop.” Then he left.", ["He said: “Stop.”", "Then he left."]),
        ("今日は。元気？はい", ["今日は。", "元気？", "はい"]),
        ("A line\nand another", ["A line", "and another"]),
        ("1 + 1 = 2\n\n***", []),
        ("wait... what", ["wait... what"]),
        ("", []),
        (" \n\t ", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert split(text).sentences == sentences


def test_a_long_sentence_is_divided_at_clauses_not_cut() -> None:
    text = "a few words, " * 200
    one = split(text)
    assert len(one.sentences) > 3
    assert all(sentence.endswith("words,") for sentence in one.sentences)
    assert one.join(one.sentences) == text


def test_html_translates_the_text_and_nothing_else() -> None:
    text = '<p class="a>b">A &amp; b.</p><script>if (a < b) x()</script><!-- x -->5 < 6 cats'
    one = split(text, "html")
    assert one.sentences == ["A & b.", "5 < 6 cats"]
    assert one.join(["A < B", "C"]) == (
        '<p class="a>b">A &lt; B</p><script>if (a < b) x()</script><!-- x -->C'
    )


@pytest.mark.parametrize("text", ["<!--" * 5000, '<a "' * 5000, "<script>" * 3000, "a. " * 7000])
def test_hostile_text_takes_no_time(text: str) -> None:
    started = time.perf_counter()
    split(text, "html")
    assert time.perf_counter() - started < 1.0
