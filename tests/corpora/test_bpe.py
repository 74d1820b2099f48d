"""BPE as subword-nmt defines it: worked by hand, against a naive learner, and inverted."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kutta.corpora.bpe import codes_file, learn_merges, splitter

# The example of Sennrich et al. (2016): low 5, lower 2, newest 6, widest 3.
TEXT = ["low " * 5 + "lower " * 2, "newest " * 6 + "widest " * 3]
WORDS = st.text(alphabet="abc", min_size=1, max_size=6)
LINES = st.lists(st.lists(WORDS, max_size=8).map(" ".join), max_size=6)


def test_the_example_of_the_paper_worked_by_hand() -> None:
    merges = learn_merges(TEXT, 7)
    assert merges == [
        ("s", "t</w>"),  # 9, as often as (e, s), and last in order
        ("e", "st</w>"),  # 9
        ("l", "o"),  # 7
        ("w", "est</w>"),  # 6, as often as (n, e) and (e, w)
        ("n", "e"),  # 6, as often as (e, west)
        ("ne", "west</w>"),  # 6
        ("lo", "w</w>"),  # 5
    ]
    split = splitter(merges)
    assert split("newest lowest low  newer ") == "newest lo@@ west low ne@@ w@@ e@@ r"
    assert codes_file(merges[:1]) == "#version: 0.2\ns t</w>\n"


def test_pairs_that_occur_once_are_not_merged() -> None:
    assert learn_merges(["ab cd cd"], 10) == [("c", "d</w>")]
    assert learn_merges([], 10) == []


@given(LINES, st.integers(1, 12))
def test_the_table_of_pairs_gives_the_merges_of_counting_everything_again(
    lines: list[str], count: int
) -> None:
    assert learn_merges(lines, count) == naive(lines, count)


@given(LINES)
def test_joining_the_subwords_gives_the_line(lines: list[str]) -> None:
    split = splitter(learn_merges(lines, 5))
    for line in [*lines, "xyz abcabc"]:
        assert split(line).replace("@@ ", "") == line


def naive(lines: list[str], count: int) -> list[tuple[str, str]]:
    """Count all pairs after each merge; join by replacing in the written word."""
    words = Counter(word for line in lines for word in line.split())
    parts = {word: [*word[:-1], word[-1] + "</w>"] for word in words}
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, times in words.items():
            for pair in pairwise(parts[word]):
                pairs[pair] += times
        if not pairs or max(pairs.values()) < 2:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for word in words:
            text = f"  {'  '.join(parts[word])}  ".replace(
                f" {best[0]}  {best[1]} ", f" {''.join(best)} "
            )
            parts[word] = text.split()
    return merges
