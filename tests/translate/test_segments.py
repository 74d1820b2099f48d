"""Lines in segments: nothing is lost, none is too long, and the best places are chosen."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kutta.data.tokenizer import BOS, PAD
from kutta.translate.loops import EVERY, LONGEST_PERIOD, SHORTEST_LOOP, looping
from kutta.translate.segments import join, longest_source, split

Count = Callable[[str], int]


def words(text: str) -> int:
    return len(text.split())


def characters(text: str) -> int:
    return len("".join(text.split()))


def texts(line: str, count: Count, limit: int) -> list[str]:
    return [segment.text for segment in split(line, count, limit)]


@given(st.text(alphabet="ab .,!?;。，\u0301\t😀\u200d", max_size=200), st.integers(1, 20))
@pytest.mark.parametrize("count", [words, characters])
def test_nothing_is_lost_and_nothing_is_too_long(count: Count, line: str, limit: int) -> None:
    segments = split(line, count, limit)
    assert "".join("".join(s.text.split()) for s in segments) == "".join(line.split())
    joined = "".join(f"{segment.joint}{segment.text}" for segment in segments)
    assert joined.split() == line.split()  # no word is cut in two by a space, or glued to another
    marks = any(mark in line for mark in "\u0301\u200d")
    assert marks or all(count(segment.text) <= limit for segment in segments)


def test_sentences_come_before_clauses_and_clauses_before_words() -> None:
    line = "One two. Three four, five six? Seven eight nine ten eleven"
    assert texts(line, words, 100) == [line]
    assert texts(line, words, 6) == [
        "One two. Three four, five six?",
        "Seven eight nine ten eleven",
    ]
    assert texts(line, words, 3) == [
        *("One two.", "Three four,", "five six?", "Seven eight nine", "ten eleven"),
    ]


def test_words_without_spaces_are_cut_and_joined_without_them() -> None:
    line = "x" * 5000
    segments = split(line, characters, 256)
    assert len(segments) == 20
    assert {segment.joint for segment in segments} == {""}
    assert max(len(segment.text) for segment in segments) <= 256


def test_chinese_sentences_are_joined_without_spaces() -> None:
    segments = split("一二三。四五六！七八九", characters, 5)
    assert [(s.joint, s.text) for s in segments] == [
        ("", "一二三。"),
        ("", "四五六！"),
        ("", "七八九"),
    ]


def test_accents_and_joined_emoji_stay_together() -> None:
    family = "👩\u200d👩\u200d👧"
    parts = texts(("e\u0301" + family) * 30, len, 20)
    assert all(not part.startswith(("\u0301", "\u200d")) for part in parts)
    assert all(not part.endswith("\u200d") for part in parts)


def test_one_character_of_many_tokens_is_a_segment() -> None:
    assert texts("ab", lambda text: 9 * len(text), 4) == ["a", "b"]


def test_a_line_of_megabytes_is_split_in_little_time() -> None:
    assert len(split("ab" * 500_000, characters, 256)) >= 1_000_000 // 256
    assert len(split("word " * 200_000, words, 256)) == 782


def test_translations_are_joined_by_rank() -> None:
    found = [("", [("A.", -1.0), ("a.", -2.0)]), (" ", [("B", -3.0)]), ("", [("C", -5.0)])]
    assert join(found, add=False) == [("A. BC", -3.0), ("a. BC", -10 / 3)]
    assert join(found, add=True) == [("A. BC", -9.0), ("a. BC", -10.0)]
    assert join(found[:1], add=False) == found[0][1]


@pytest.mark.parametrize(("trained", "limit"), [(10, 256), (256, 256), (700, 700), (99_999, 4096)])
def test_the_limit_is_that_of_training(trained: int, limit: int) -> None:
    assert longest_source(trained) == limit


# ---- loops --------------------------------------------------------------------------------------


def loops(row: list[int], limit: int) -> bool:
    return bool(looping(np.array([[BOS, *row]]), np.array([len(row)]), np.array([limit]))[0])


@given(st.integers(1, LONGEST_PERIOD), st.integers(0, 30), st.integers(0, 200))
def test_a_phrase_repeated_for_more_than_half_of_the_limit_is_a_loop(
    period: int, before: int, limit: int
) -> None:
    needed = max(SHORTEST_LOOP, limit // 2)
    start = [100 + number for number in range(before)]
    repeated = [10 + number % period for number in range(needed + EVERY)]
    row = start + repeated
    row = row[: len(row) // EVERY * EVERY]
    assert loops(row, limit)
    assert not loops(row[:-1], limit)  # it looks at some lengths only
    shorter = [200 + number for number in range(64 + limit)] + repeated[: needed - 1]
    assert not loops(shorter[len(shorter) % EVERY :], limit)


def test_rows_have_their_own_limits() -> None:
    row = [BOS] + [7] * 48
    rows = np.array([row, row, [BOS, *range(100, 148)], [PAD] * 8 + row[:41]])
    found = looping(rows, np.array([48, 48, 48, 40]), np.array([60, 200, 60, 60]))
    assert found.tolist() == [True, False, False, True]


def test_what_was_before_a_row_began_is_not_part_of_a_loop() -> None:
    row = [PAD] * 40 + [BOS] + [7] * 32
    assert not looping(np.array([row]), np.array([32]), np.array([80]))[0]
    assert looping(np.array([row]), np.array([32]), np.array([64]))[0]
