"""Placeholders of values: a number stands for one that a model loses."""

from kutta.documents.placeholders import Scored, search_with_values


def losing(sentences: list[str]) -> list[list[Scored]]:
    """Like a model that knows letters and numbers only."""
    asked.append(sentences)
    kept = ["".join(c for c in one if c.isalnum() or c == " ") for one in sentences]
    return [[(one.upper(), -1.0), ("else", -2.0)] for one in kept]


asked: list[list[str]] = []


def test_a_number_stands_for_a_lost_value() -> None:
    asked.clear()
    sentences = ["no value", "{0} has %d of 21", "[X7X] files %s"]
    assert search_with_values(sentences, losing) == [
        [("NO VALUE", -1.0), ("else", -2.0)],
        [("{0} HAS %d OF 21", -1.0)],
        [("[X7X] FILES %s", -1.0)],
    ]
    assert asked == [sentences, ["22 has 23 of 21", "21 files 22"]]


def test_sentences_that_keep_their_values_are_translated_once() -> None:
    calls: list[list[str]] = []

    def keeping(sentences: list[str]) -> list[list[Scored]]:
        calls.append(sentences)
        return [[(one, 0.0)] for one in sentences]

    assert search_with_values(["%d of {x}", "a"], keeping) == [[("%d of {x}", 0.0)], [("a", 0.0)]]
    assert len(calls) == 1
    assert search_with_values([], keeping) == []


def test_what_cannot_be_kept_stays_as_it_is() -> None:
    lost = [("nothing", 0.0)]
    assert search_with_values(["%d files"], lambda some: [lost for _ in some]) == [lost]
