"""A stream of lines: one out for each in, long ones in sentences."""

from collections.abc import Iterable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from kutta.documents.lines import translate_lines


@given(st.lists(st.text(st.sampled_from("aB1 ."), max_size=30), max_size=8))
def test_one_line_out_for_each_line_in(lines: list[str]) -> None:
    asked: list[str] = []

    def upper(sentences: Iterable[str]) -> Iterator[str]:
        for sentence in sentences:
            asked.append(sentence)
            yield sentence.upper()

    def is_short(line: str) -> bool:
        return len(line) <= 10

    new = list(translate_lines(iter(lines), upper, is_short, "en", is_short))
    assert new == [line.upper() for line in lines]
    assert all(map(is_short, asked))


def test_lines_are_read_one_by_one() -> None:
    read: list[str] = []

    def lines() -> Iterator[str]:
        for line in ("One. Two. Three.", "12345678901", "four"):
            read.append(line)
            yield line

    new = translate_lines(
        lines(),
        lambda read: map(str.upper, read),
        lambda s: len(s) < 9,
        "en",
        lambda _: True,
    )
    assert next(new) == "ONE. TWO. THREE."
    assert read == ["One. Two. Three."]
    assert list(new) == ["12345678901", "FOUR"]
