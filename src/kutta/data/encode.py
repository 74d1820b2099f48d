"""Blocks of text to encoded pairs: spelled, cut, filtered and counted. What a worker does."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from kutta.data.column import Column, Lengths, Mask, id_type
from kutta.data.corpus import Block
from kutta.data.tokenizer import Tokenizer, Tokenizers

REMEMBERED = 1 << 17  # words whose ids are at hand; as many older ones are kept beside them (50 MB)
LONGEST = 64  # characters of a word worth remembering; what is longer hardly comes again


@dataclass
class Tally:
    """How many pairs were read, cut and kept, and why the others were dropped."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter[str])
    cut: int = 0
    what: str = "pairs"  # or lines, of a language model

    def __str__(self) -> str:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.dropped.most_common())
        dropped = f"; dropped: {reasons}" if reasons else ""
        cut = f", {self.cut:,} sources cut" if self.cut else ""
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
    """Which pairs are kept. Sources are cut to `max_source` tokens (0: not) before all else.

    A pair goes where a side is longer than `max_length` tokens, is empty, or is more than
    `max_ratio` times as long as the other (most often a wrong alignment). In a `one_sided` corpus
    (of a language model) only the target counts.
    """

    max_length: int
    max_ratio: float | None = None
    max_source: int = 0
    drop_empty: bool = True
    one_sided: bool = False

    def reasons(self, source: Lengths, target: Lengths) -> Iterator[tuple[str, Mask]]:
        """What may be said against which pairs of these lengths; the first reason counts."""
        yield f"with a source too long (> {self.max_length} tokens)", source > self.max_length
        yield f"with a target too long (> {self.max_length} tokens)", target > self.max_length
        if self.drop_empty and not self.one_sided:
            yield "with an empty source", source == 0
        if self.drop_empty:
            yield "with an empty target", target == 0
        if self.max_ratio is not None and not self.one_sided:
            unequal = np.maximum(source, target) > self.max_ratio * np.minimum(source, target)
            yield f"with one side longer than {self.max_ratio:g} x the other", unequal


def keep(source: Column, target: Column, limits: Limits, tally: Tally) -> tuple[Column, Column]:
    """The pairs within the limits, counted in `tally` with the reasons of the others."""
    tally.read += len(source)
    if limits.max_source:
        tally.cut += int((source.lengths > limits.max_source).sum())
        source = source.cut(limits.max_source)
    kept = np.ones(len(source), np.bool_)
    for reason, against in limits.reasons(source.lengths, target.lengths):
        dropped = int((kept & against).sum())
        if dropped:
            tally.dropped[reason] += dropped
            kept &= ~against
    tally.kept += int(kept.sum())
    return (source, target) if kept.all() else (source.where(kept), target.where(kept))


class Words(dict[str, bytes]):
    """The ids of words that came before. A new word is noted and has none until it is learned.

    `older` are words that came long ago; those that come again are taken over.
    """

    def __init__(self, older: Mapping[str, bytes]) -> None:
        super().__init__()
        self._older = older
        self.new: list[str] = []

    def __missing__(self, word: str) -> bytes:
        ids = self._older.get(word)
        if ids is None:
            self.new.append(word)
            return b""
        self[word] = ids
        return ids

    def encode(self, text: str) -> bytes:
        return b"".join(map(self.__getitem__, text.split()))


class Spelling:
    """A tokenizer that remembers: nearly every word of a text has come before, and to look it up is
    many times faster than to encode it again."""

    def __init__(self, tokenizer: Tokenizer, kind: type[np.integer[Any]]) -> None:
        self._tokenizer, self._kind, self._code = tokenizer, kind, np.dtype(kind).char
        self._words = Words({})

    def encode(self, texts: Sequence[str]) -> Column:
        """What the tokenizer makes of each text."""
        if len(self._words) > REMEMBERED:
            self._words = Words(dict(self._words))  # what was older still is forgotten
        words, rows, unknown = self._words, list[bytes](), list[int]()
        for number, text in enumerate(texts):
            before = len(words.new)
            rows.append(words.encode(text))
            if len(words.new) > before:
                unknown.append(number)
        new = self._learn()
        for number in unknown:
            rows[number] = words.encode(texts[number])
        for word in new:
            if len(word) > LONGEST:
                del words[word]
        return Column.from_bytes(rows, self._kind)

    def _learn(self) -> list[str]:
        """Encode the new words, all at once."""
        new = list(dict.fromkeys(self._words.new))
        for word, ids in zip(new, self._tokenizer.encode_words(new), strict=True):
            self._words[word] = array(self._code, ids).tobytes()
        self._words.new.clear()
        return new


@dataclass(frozen=True)
class Encoded:
    """What became of a block."""

    tally: Tally
    source: Column
    target: Column


def encoder(tokenizers: Tokenizers, limits: Limits) -> Callable[[Block], Encoded]:
    """The function that encodes a block."""
    kind = id_type(larger(tokenizers))  # as the store keeps them
    source = Spelling(tokenizers.source, kind)
    target = source if tokenizers.shared else Spelling(tokenizers.target, kind)

    def encode(block: Block) -> Encoded:
        tally = Tally()
        sources, targets = block.decode()
        return Encoded(tally, *keep(source.encode(sources), target.encode(targets), limits, tally))

    return encode


def larger(tokenizers: Tokenizers) -> int:
    """The size of the larger vocabulary."""
    return max(len(tokenizers.source), len(tokenizers.target))


def word_counter(sides: tuple[int, ...]) -> Callable[[Block], Counter[str]]:
    """The function that counts the words of these sides (0, 1) in a block."""

    def count(block: Block) -> Counter[str]:
        texts = block.decode()
        lines = chain.from_iterable(texts[side] for side in sides)
        return Counter(chain.from_iterable(map(str.split, lines)))

    return count
