"""The work of a worker process: encode, truncate, filter and count the pairs of a chunk."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from kutta.data.corpus import LineChunk
from kutta.data.ragged import Lengths, Mask, Ragged, id_type
from kutta.data.tokenizer import Tokenizer, Tokenizers

CACHED = 1 << 18  # words in the cache (about 35 MB)
LONGEST = 64  # characters of a word worth caching; longer ones hardly ever recur


@dataclass
class Tally:
    """How many pairs were read, truncated and kept, and why the others were dropped."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter[str])
    cut: int = 0
    what: str = "pairs"  # or lines, of a language model

    def __str__(self) -> str:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.dropped.most_common())
        dropped = f"; dropped: {reasons}" if reasons else ""
        cut = f", {self.cut:,} sources truncated" if self.cut else ""
        return f"{self.read:,} {self.what} read{cut}, {self.kept:,} kept{dropped}"

    def to_dict(self) -> dict[str, Any]:
        counts = {"read": self.read, "cut": self.cut, "kept": self.kept}
        return counts | {"dropped": dict(self.dropped)}

    def add(self, other: "Tally") -> None:
        self.read += other.read
        self.kept += other.kept
        self.cut += other.cut
        self.dropped.update(other.dropped)


@dataclass(frozen=True)
class Limits:
    """Which pairs are kept. Sources are first truncated to `max_source` tokens (0: no limit).

    A pair is dropped if a side is longer than `max_length` tokens, is empty, or is more than
    `max_ratio` times as long as the other (usually a misalignment). In a `one_sided` corpus
    (of a language model) only the target counts.
    """

    max_length: int
    max_ratio: float | None = None
    max_source: int = 0
    drop_empty: bool = True
    one_sided: bool = False

    def reasons(self, source: Lengths, target: Lengths) -> Iterator[tuple[str, Mask]]:
        """The reasons for dropping pairs of these lengths, with masks; the first one counts."""
        yield f"with a source too long (> {self.max_length} tokens)", source > self.max_length
        yield f"with a target too long (> {self.max_length} tokens)", target > self.max_length
        if self.drop_empty and not self.one_sided:
            yield "with an empty source", source == 0
        if self.drop_empty:
            yield "with an empty target", target == 0
        if self.max_ratio is not None and not self.one_sided:
            unequal = np.maximum(source, target) > self.max_ratio * np.minimum(source, target)
            yield f"with one side longer than {self.max_ratio:g} x the other", unequal


def keep(source: Ragged, target: Ragged, limits: Limits, tally: Tally) -> tuple[Ragged, Ragged]:
    """The pairs within the limits; `tally` counts them and the reasons for dropping the others."""
    tally.read += len(source)
    if limits.max_source:
        tally.cut += int((source.lengths > limits.max_source).sum())
        source = source.truncate(limits.max_source)
    kept = np.ones(len(source), np.bool_)
    for reason, against in limits.reasons(source.lengths, target.lengths):
        dropped = int((kept & against).sum())
        if dropped:
            tally.dropped[reason] += dropped
            kept &= ~against
    tally.kept += int(kept.sum())
    return (source, target) if kept.all() else (source.where(kept), target.where(kept))


class CachedTokenizer:
    """A tokenizer with a cache of words: nearly all words recur, and a lookup is much faster."""

    def __init__(self, tokenizer: Tokenizer, kind: type[np.integer[Any]]) -> None:
        self._tokenizer, self._kind = tokenizer, kind
        self._words: dict[str, bytes] = {}  # the ids of each word

    def encode(self, texts: Sequence[str]) -> Ragged:
        """The ids of each text, as the tokenizer encodes it."""
        known, code = self._words, np.dtype(self._kind).char
        split = [text.split() for text in texts]
        words = dict.fromkeys(chain.from_iterable(split))
        new = [word for word in words if word not in known]
        for word, ids in zip(new, self._tokenizer.encode_words(new), strict=True):
            known[word] = array(code, ids).tobytes()
        rows = [b"".join(map(known.__getitem__, text)) for text in split]
        for word in new:
            if len(word) > LONGEST:
                del known[word]
        if len(known) > CACHED:  # forget all but the words of these texts
            self._words = {word: known[word] for word in words if word in known}
        return Ragged.from_bytes(rows, self._kind)


class Encoded(NamedTuple):
    """An encoded chunk: the kept pairs, and their tally."""

    tally: Tally
    source: Ragged
    target: Ragged


def encoder(tokenizers: Tokenizers, limits: Limits) -> Callable[[LineChunk], Encoded]:
    """The function that encodes a chunk."""
    kind = id_type(larger(tokenizers))  # the type of the store
    source = CachedTokenizer(tokenizers.source, kind)
    target = source if tokenizers.shared else CachedTokenizer(tokenizers.target, kind)

    def encode(chunk: LineChunk) -> Encoded:
        tally = Tally()
        sources, targets = chunk.decode()
        return Encoded(tally, *keep(source.encode(sources), target.encode(targets), limits, tally))

    return encode


def larger(tokenizers: Tokenizers) -> int:
    """The size of the larger vocabulary."""
    return max(len(tokenizers.source), len(tokenizers.target))


def word_counter(sides: tuple[int, ...]) -> Callable[[LineChunk], Counter[str]]:
    """The function that counts the words of these sides (0, 1) in a chunk."""

    def count(chunk: LineChunk) -> Counter[str]:
        texts = chunk.decode()
        lines = chain.from_iterable(texts[side] for side in sides)
        return Counter(chain.from_iterable(map(str.split, lines)))

    return count
