"""ROUGE against worked examples, against slow definitions, and as a metric like the others."""

import importlib.metadata
import random
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.metrics import METRICS, Score
from kutta.metrics.rouge import (
    Variant,
    Words,
    common_subsequence,
    ngram_overlap,
    sequence_overlap,
    words_of,
)
from kutta.metrics.significance import paired_bootstrap

ROUGE = {name: METRICS[name] for name in ("rouge1", "rouge2", "rougel")}
VARIANTS = [ngram_overlap(1), ngram_overlap(2), ngram_overlap(3), sequence_overlap]

unhurried = settings(deadline=None)
words = st.lists(st.sampled_from("abcdé"), max_size=12)
lines = st.lists(words.map(" ".join), min_size=3, max_size=3)


def slow_overlap(one: Words, other: Words, n: int) -> int:
    """Shared n-grams, each found by crossing it out of the other's list."""
    left = [other[i : i + n] for i in range(len(other) - n + 1)]
    shared = 0
    for i in range(len(one) - n + 1):
        if one[i : i + n] in left:
            left.remove(one[i : i + n])
            shared += 1
    return shared


def slow_subsequence(one: Words, other: Words) -> int:
    """The recursion of a longest common subsequence, as it is defined."""

    @cache
    def longest(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return 0
        if one[i - 1] == other[j - 1]:
            return longest(i - 1, j - 1) + 1
        return max(longest(i - 1, j), longest(i, j - 1))

    return longest(len(one), len(other))


def slow_rouge(name: str, hypothesis: str, references: Sequence[str]) -> list[Fraction]:
    """F1, precision and recall against the first reference with the best F1, in exact fractions."""
    found: list[list[Fraction]] = []
    for reference in references:
        one, other = hypothesis.split(), reference.split()
        if name == "rougel":
            shared, sizes = slow_subsequence(one, other), [len(one), len(other)]
        else:
            n = int(name[-1])
            shared = slow_overlap(one, other, n)
            sizes = [max(len(text) - n + 1, 0) for text in (one, other)]
        precision, recall = (Fraction(shared, size or 1) for size in sizes)
        f1 = 2 * precision * recall / (precision + recall) if shared else Fraction(0)
        found.append([f1, precision, recall])
    return max(found, key=lambda each: each[0])


# ---- worked examples -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hypothesis", "reference", "printed"),
    [
        # police, the, gunman: 3 of 4 either way; "the gunman" 1 of 3; police the gunman: 3 of 4.
        ("rouge1", "Police kill the gunman", "police killed the gunman", "75.00, P=75.00, R=75.00"),
        ("rouge2", "Police kill the gunman", "police killed the gunman", "33.33, P=33.33, R=33.33"),
        ("rougel", "Police kill the gunman", "police killed the gunman", "75.00, P=75.00, R=75.00"),
        # The same words in another order: "the gunman" is the longest that is in order, 2 of 4.
        ("rougel", "the gunman kill police", "police killed the gunman", "50.00, P=50.00, R=50.00"),
        # "the" three times counts twice, as the reference has it: P 2/3, R 2/5, F 4/8.
        ("rouge1", "the the the", "the cat and the dog", "50.00, P=66.67, R=40.00"),
        # a-b-c-d of a-x-b-y-c-z-d: P 4/4, R 4/7, F 8/11.
        ("rougel", "a b c d", "a x b y c z d", "72.73, P=100.00, R=57.14"),
        ("rouge2", "a b c d", "a x b y c z d", "0.00, P=0.00, R=0.00"),
    ],
)
def test_worked_examples(name: str, hypothesis: str, reference: str, printed: str) -> None:
    score = ROUGE[name]([hypothesis], [reference])
    assert str(score) == f"ROUGE-{name[-1].upper()} = {printed} [{score.signature}]"


def test_a_corpus_is_the_mean_of_its_sentences_and_not_of_their_words() -> None:
    # F1 of 1, 0 and 2/3: their sizes do not matter.
    hypotheses = ["a b c d e f g h", "x", "a b"]
    references = ["a b c d e f g h", "y", "a"]
    assert ROUGE["rouge1"](hypotheses, references).value == pytest.approx(100 * (1 + 0 + 2 / 3) / 3)


def test_of_several_references_the_best_counts_for_each_sentence() -> None:
    hypotheses, references = ["a b", "c d"], [["a b", "x"], ["y", "c d"]]
    assert ROUGE["rouge1"](hypotheses, references).value == pytest.approx(100)
    assert ROUGE["rouge1"](hypotheses, references[0]).value == pytest.approx(50)


def test_nothing_in_common_or_nothing_at_all_is_zero() -> None:
    for metric in ROUGE.values():
        for pair in (("", ""), ("", "a b"), ("a b", ""), ("a b", "c d"), (" . , !", "...")):
            assert metric([pair[0]], [pair[1]]).value == 0.0
    assert ROUGE["rouge2"](["one"], ["one"]).value == 0.0  # a single word has no pair


# ---- words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The U.S. won't pay $3,500!", "the u s won t pay 3 500"),
        ("state-of-the-art_tools", "state of the art tools"),
        ("  \t\u00a0 ", ""),
        ("Ärzte in İstanbul? Straße №5", "ärzte in i stanbul straße 5"),
        ("Café und Cafe\u0301", "café und café"),  # written either way
        ("Привет, МИР", "привет мир"),
        ("日本語 テスト", "日本語 テスト"),
        ("\ud800x \x00y", "x y"),  # half a character is none
    ],
)
def test_words_are_letters_and_digits_in_lower_case(text: str, expected: str) -> None:
    assert words_of(text) == expected.split()


@unhurried
@given(st.text())
def test_words_of_any_text_are_alphanumeric_and_stay_themselves(text: str) -> None:
    found = words_of(text)
    assert all(word.isalnum() for word in found)
    assert words_of(" ".join(found)) == found


# ---- against the definitions -----------------------------------------------------------------


@unhurried
@given(words, words)
def test_the_common_subsequence_is_that_of_the_recursion(one: Words, other: Words) -> None:
    assert common_subsequence(one, other) == slow_subsequence(one, other)


@pytest.mark.parametrize("name", ROUGE)
@unhurried
@given(hypotheses=lines, references=st.lists(lines, min_size=1, max_size=3))
def test_equals_the_slow_definition(
    name: str, hypotheses: list[str], references: list[list[str]]
) -> None:
    each = [
        slow_rouge(name, line, rivals)
        for line, *rivals in zip(hypotheses, *references, strict=True)
    ]
    columns = zip(*each, strict=True)
    f1, precision, recall = (float(100 * sum(column) / len(each)) for column in columns)
    score = ROUGE[name](hypotheses, references)
    assert score.value == pytest.approx(f1, abs=1e-9)
    assert score.details == f"P={precision:.2f}, R={recall:.2f}"


@pytest.mark.parametrize("overlap", VARIANTS, ids=["1", "2", "3", "L"])
@unhurried
@given(one=words, other=words)
def test_exchanging_the_texts_exchanges_precision_and_recall(
    overlap: Variant, one: Words, other: Words
) -> None:
    there, back = overlap(one, other), overlap(other, one)
    f1, precision, recall = there.rates()
    assert back.rates() == (f1, recall, precision)
    assert min(precision, recall) <= f1 <= max(precision, recall)
    itself = overlap(one, one)
    assert itself.rates()[0] == (1.0 if itself.found else 0.0)


@unhurried
@given(words, words)
def test_order_can_only_cost(one: Words, other: Words) -> None:
    """What is in common in order is in common without; one more word never lessens it."""
    shared = sequence_overlap(one, other).shared
    assert shared <= ngram_overlap(1)(one, other).shared
    assert shared <= sequence_overlap([*one, "a"], other).shared <= shared + 1


# ---- as a metric -----------------------------------------------------------------------------


def test_the_signature_tells_what_was_counted() -> None:
    score: Score = ROUGE["rougel"](["a"], [["a"], ["b"]])
    assert score.name == "ROUGE-L"
    assert score.signature.startswith(
        "kutta|rouge-L|nrefs:2|case:lc|tok:alphanumeric|stem:no|f1:mean-of-best|version:"
    )
    assert score.signature.endswith(f"|version:{importlib.metadata.version('kutta')}")


@pytest.mark.parametrize("name", ROUGE)
def test_the_bootstrap_finds_the_better_system(name: str) -> None:
    rng = random.Random(3)
    references = [" ".join(rng.choices("abcdefghijkl", k=20)) for _ in range(40)]

    def system(rate: float) -> list[str]:
        return [
            " ".join("?" if rng.random() < rate else word for word in line.split())
            for line in references
        ]

    worse, better = system(0.4), system(0.1)
    result = paired_bootstrap(worse, better, references, ROUGE[name], samples=200)
    assert result.b.value > result.a.value
    assert result.p_value < 0.01
    low, high = result.b_interval
    assert low < result.b.value < high
    counts = ROUGE[name].count(better, [references])
    assert np.array_equal(counts[:, 0], np.ones(40))
