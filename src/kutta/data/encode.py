"""Blocks of text to encoded pairs: spelled, cut, filtered and counted. What a worker does."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from kutta.data.corpus import Block
from kutta.data.tokenizer import Pair, Tokenizer, Tokenizers

REMEMBERED = 1 << 17  # words whose ids are at hand; as many older ones are kept beside them (50 MB)
LONGEST = 64  # characters of a word worth remembering; what is longer hardly comes again

Code = Literal["H", "i"]  # of an array of ids: uint16 or int32


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

    def why_dropped(self, source: int, target: int) -> str | None:
        """The reason against a pair of these lengths, if there is one."""
        if source > self.max_length:
            return f"with a source too long (> {self.max_length} tokens)"
        if target > self.max_length:
            return f"with a target too long (> {self.max_length} tokens)"
        if self.drop_empty and not source and not self.one_sided:
            return "with an empty source"
        if self.drop_empty and not target:
            return "with an empty target"
        if self.max_ratio is None or self.one_sided:
            return None
        if max(source, target) > self.max_ratio * min(source, target):
            return f"with one side longer than {self.max_ratio:g} x the other"
        return None


def keep(pairs: Iterable[Pair], limits: Limits, tally: Tally) -> Iterator[Pair]:
    """The encoded pairs within the limits, counted in `tally` with the reasons of the others."""
    for source, target in pairs:
        tally.read += 1
        if 0 < limits.max_source < len(source):
            tally.cut += 1
            source = source[: limits.max_source]
        reason = limits.why_dropped(len(source), len(target))
        if reason is None:
            tally.kept += 1
            yield source, target
        else:
            tally.dropped[reason] += 1


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

    def __init__(self, tokenizer: Tokenizer, code: Code) -> None:
        self._tokenizer, self._code = tokenizer, code
        self._words = Words({})

    def encode(self, texts: Sequence[str]) -> "list[array[int]]":
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
        return [array(self._code, row) for row in rows]

    def _learn(self) -> list[str]:
        """Encode the new words, all at once."""
        new = list(dict.fromkeys(self._words.new))
        for word, ids in zip(new, self._tokenizer.encode_words(new), strict=True):
            self._words[word] = array(self._code, ids).tobytes()
        self._words.new.clear()
        return new


@dataclass(frozen=True)
class Encoded:
    """What became of a block: of each side all ids one after the other, and the lengths of rows."""

    tally: Tally
    tokens: "tuple[array[int], array[int]]"
    lengths: "tuple[array[int], array[int]]"

    def pairs(self) -> "Iterator[tuple[array[int], array[int]]]":
        sources, targets = map(_rows, self.tokens, self.lengths)
        return zip(sources, targets, strict=True)


def encoder(tokenizers: Tokenizers, limits: Limits) -> Callable[[Block], Encoded]:
    """The function that encodes a block."""
    larger = max(len(tokenizers.source), len(tokenizers.target))
    code: Code = "H" if larger <= 1 << 16 else "i"  # as the store keeps them
    source = Spelling(tokenizers.source, code)
    target = source if tokenizers.shared else Spelling(tokenizers.target, code)

    def encode(block: Block) -> Encoded:
        tally = Tally()
        tokens, lengths = (array(code), array(code)), (array("i"), array("i"))
        sources, targets = zip(*block.decode(), strict=True)
        pairs = zip(source.encode(sources), target.encode(targets), strict=True)
        for pair in keep(pairs, limits, tally):
            for side, ids in enumerate(pair):
                tokens[side].extend(ids)
                lengths[side].append(len(ids))
        return Encoded(tally, tokens, lengths)

    return encode


def word_counter(sides: tuple[int, ...]) -> Callable[[Block], Counter[str]]:
    """The function that counts the words of these sides (0, 1) in a block."""

    def count(block: Block) -> Counter[str]:
        texts = (pair[side] for pair in block.decode() for side in sides)
        return Counter(chain.from_iterable(map(str.split, texts)))

    return count


def _rows(tokens: "array[int]", lengths: "array[int]") -> "Iterator[array[int]]":
    start = 0
    for length in lengths:
        yield tokens[start : start + length]
        start += length
