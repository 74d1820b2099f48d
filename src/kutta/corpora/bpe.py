"""BPE of words as subword-nmt defines it, for text that was published split (`@@`).

Sennrich, Haddow and Birch (2016): a word is a sequence of letters, the last one marked by `</w>`;
the most frequent pair of neighbours is merged, again and again. The BPE that `kutta train` learns
from raw text is another one, in kutta.data.tokenizer.
"""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

END = "</w>"
JOIN = "@@"  # at the end of a subword that continues

Pair = tuple[str, str]


def learn_merges(lines: Iterable[str], count: int, min_frequency: int = 2) -> list[Pair]:
    """The `count` most frequent merges of the words of `lines`, in order.

    Of equally frequent pairs the last in the order of code points is merged first, as by
    subword-nmt. The list is shorter if no pair is left that occurs `min_frequency` times.
    """
    words = Counter(word for line in lines for word in line.split(" ") if word)
    table = _Table(words)
    merges: list[Pair] = []
    while len(merges) < count and (pair := table.most_frequent(min_frequency)):
        table.merge(pair)
        merges.append(pair)
    return merges


def splitter(merges: Sequence[Pair]) -> Callable[[str], str]:
    """A function that splits the words of a line by `merges`, the earliest first."""
    rank = {pair: number for number, pair in enumerate(merges)}

    @lru_cache(maxsize=1 << 16)
    def split(word: str) -> str:
        parts = _letters(word)
        while len(parts) > 1:
            best = min(pairwise(parts), key=lambda p: rank.get(p, len(rank)))
            if best not in rank:
                break
            parts = _merged(parts, best)
        return f"{JOIN} ".join(parts).removesuffix(END)

    return lambda line: " ".join(split(word) for word in line.split(" ") if word)


def codes_file(merges: Iterable[Pair]) -> str:
    """The merges as a codes file of subword-nmt."""
    return "".join(f"{line}\n" for line in ("#version: 0.2", *(" ".join(pair) for pair in merges)))


class _Table:
    """The words as they are split so far, with the number of occurrences of each pair."""

    def __init__(self, words: Counter[str]) -> None:
        self._parts = [_letters(word) for word in words]
        self._counts = list(words.values())
        self._frequency: Counter[Pair] = Counter()
        self._inside: defaultdict[Pair, set[int]] = defaultdict(set)  # pair -> words
        for word in range(len(self._parts)):
            self._add(word, +1)
        # Pairs in order by frequency; an entry whose pair has another frequency by now is skipped.
        self._queues: defaultdict[int, list[Pair]] = defaultdict(list)
        for pair, frequency in sorted(self._frequency.items()):
            self._queues[frequency].append(pair)
        self._highest = max(self._queues, default=0)

    def most_frequent(self, at_least: int) -> Pair | None:
        """The next pair to merge; a merge makes no pair that is more frequent than itself."""
        while self._highest >= max(at_least, 1):
            queue = self._queues[self._highest]
            while queue and self._frequency[queue[-1]] != self._highest:
                queue.pop()
            if queue:
                return queue[-1]
            self._highest -= 1
        return None

    def merge(self, pair: Pair) -> None:
        """Join `pair` in all words and count the pairs of those words again."""
        before: dict[Pair, int] = {}
        for word in list(self._inside[pair]):
            old, new = self._parts[word], _merged(self._parts[word], pair)
            for one in (*pairwise(old), *pairwise(new)):
                before.setdefault(one, self._frequency[one])
            self._add(word, -1)
            self._parts[word] = new
            self._add(word, +1)
        for one, frequency in before.items():
            if self._frequency[one] not in (0, frequency):
                insort(self._queues[self._frequency[one]], one)

    def _add(self, word: int, sign: int) -> None:
        for pair in pairwise(self._parts[word]):
            self._frequency[pair] += sign * self._counts[word]
            if sign > 0:
                self._inside[pair].add(word)
            else:
                self._inside[pair].discard(word)


def _letters(word: str) -> tuple[str, ...]:
    return (*word[:-1], word[-1] + END)


def _merged(parts: Sequence[str], pair: Pair) -> tuple[str, ...]:
    """`parts` with each occurrence of `pair` joined, from the left."""
    merged: list[str] = []
    position = 0
    while position < len(parts):
        step = 2 if tuple(parts[position : position + 2]) == pair else 1
        merged.append("".join(parts[position : position + step]))
        position += step
    return tuple(merged)
