"""ROUGE (Lin, 2004): overlap with a reference in n-grams or in the longest common subsequence.

Words are runs of letters and digits, lower-cased and not stemmed. On ASCII text the numbers are
those of the Python package rouge-score; unlike that package, non-ASCII letters are kept.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from kutta import __version__
from kutta.metrics.score import Counts, Lines, Metric, Score

Words = list[str]

_WORD = re.compile(r"[^\W_]+")


class Overlap(NamedTuple):
    """The overlap of a text of `found` units and a reference of `wanted` units."""

    shared: int
    found: int
    wanted: int

    def rates(self) -> tuple[float, float, float]:
        """F1, precision P and recall R; F1 = 2 PR / (P + R) = 2 shared / (both sizes)."""
        shared, found, wanted = self
        return 2 * shared / max(1, found + wanted), shared / max(1, found), shared / max(1, wanted)


Variant = Callable[[Words, Words], Overlap]


def words_of(text: str) -> Words:
    """The words of a text as ROUGE counts them."""
    return _WORD.findall(unicodedata.normalize("NFC", text.lower()))


def ngram_overlap(n: int) -> Variant:
    """ROUGE-N: the number of shared n-grams, with clipped counts."""

    def overlap(words: Words, reference: Words) -> Overlap:
        shifted = ([text[i:] for i in range(n)] for text in (words, reference))
        ours, theirs = (Counter(zip(*texts, strict=False)) for texts in shifted)
        return Overlap((ours & theirs).total(), ours.total(), theirs.total())

    return overlap


def sequence_overlap(words: Words, reference: Words) -> Overlap:
    """ROUGE-L over the whole text: the length of the longest common subsequence."""
    return Overlap(common_subsequence(words, reference), len(words), len(reference))


def common_subsequence(one: Words, other: Words) -> int:
    """The length of the longest common subsequence; a row of the DP table is stored as bits.

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


def rouge(name: str, overlap: Variant) -> Metric:
    """The mean over sentences of the F1 with the best reference; `name` as in ROUGE-name."""

    def count(hypotheses: Lines, references: Sequence[Lines]) -> Counts:
        """(sentences, 4): 1, F1, precision, recall."""
        ours = map(words_of, hypotheses)
        theirs = zip(*(map(words_of, text) for text in references), strict=True)
        best = (
            max((overlap(words, reference).rates() for reference in several), key=itemgetter(0))
            for words, several in zip(ours, theirs, strict=True)
        )
        return np.array([(1.0, *rates) for rates in best])

    def score(sums: Counts, references: int) -> Score:
        f1, precision, recall = (100 * float(total) for total in sums[1:] / sums[0])
        return Score(
            name=f"ROUGE-{name}",
            value=f1,
            details=f"P={precision:.2f}, R={recall:.2f}",
            signature=f"kutta|rouge-{name}|nrefs:{references}|case:lc|tok:alphanumeric|stem:no"
            f"|f1:mean-of-best|version:{__version__}",
        )

    return Metric(count, score)
