"""ROUGE: how much of a reference a text has in common with it, by n-grams or in order.

Lin (2004). Words are runs of letters and digits, lower-cased and not stemmed. On plain ASCII text
the numbers are those of the Python package rouge-score; outside ASCII that package drops the
letters, and we keep them.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

Words = list[str]

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Overlap:
    """What a text of `found` units and a reference of `wanted` units share."""

    shared: int
    found: int
    wanted: int

    @property
    def precision(self) -> float:
        return self.shared / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        return self.shared / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall: 2 PR / (P + R) = 2 shared / (both sizes)."""
        return 2 * self.shared / (self.found + self.wanted) if self.shared else 0.0


Variant = Callable[[Words, Words], Overlap]


def words_of(text: str) -> Words:
    """The words of a text as ROUGE counts them."""
    return _WORD.findall(unicodedata.normalize("NFC", text.lower()))


def ngram_overlap(n: int) -> Variant:
    """ROUGE-N: the n-grams shared, each as often as both have it."""

    def overlap(words: Words, reference: Words) -> Overlap:
        ours, theirs = _ngrams(words, n), _ngrams(reference, n)
        return Overlap((ours & theirs).total(), ours.total(), theirs.total())

    return overlap


def sequence_overlap(words: Words, reference: Words) -> Overlap:
    """ROUGE-L over the whole text: the words of a longest common subsequence."""
    return Overlap(common_subsequence(words, reference), len(words), len(reference))


def common_subsequence(one: Words, other: Words) -> int:
    """The length of a longest common subsequence; a row of its table is the bits of a number.

    Bit i of `row` is 0 where the length grows from column i to i + 1. A word of `one` moves the 0
    that ends a run of 1s down to the lowest match within that run (Hyyrö, 2004).
    """
    places: dict[str, int] = {}
    for i, word in enumerate(other):
        places[word] = places.get(word, 0) | 1 << i
    every = (1 << len(other)) - 1
    row = every
    for word in one:
        matches = row & places.get(word, 0)
        row = (row + matches | row - matches) & every
    return len(other) - row.bit_count()


def _ngrams(words: Words, n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[i:] for i in range(n)), strict=False))
