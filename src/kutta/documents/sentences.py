"""Text in sentences: split, translate and put together again with its line breaks and spacing.

A translator is any function from a list of sentences to the list of their translations.

Well-known splitters were measured first. pysbd takes 70 s for a megabyte and its last release is of
2021; sentencex panics on a non-breaking space; mediacloud's splitter does not keep spacing.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from kutta.documents.abbreviations import Words, words_of

Translate = Callable[[list[str]], Sequence[str]]
Fits = Callable[[str], bool]

LONGEST = 600  # characters of a sentence by default; models are trained on single sentences

_LINE_BREAK = re.compile(r"[\n\r\v\f\x85\u2028\u2029]+")
# The end of a sentence: marks, closing quotes and brackets (French ones after a space), white
# space. Chinese and Japanese marks need no white space. A match begins with the first of the marks
# and looks a bounded number of characters ahead, so time grows only with the length of the text.
_END = re.compile(
    r"(?<![.!?…؟۔।॥])(?P<marks>[.!?…؟۔।॥]+)"
    r"(?P<closing>(?:[\"'”“’‘»«›‹)\]]|[ \u00a0\u202f]»(?=\s|$))*)\s+"
    r"|[。！？｡]+[」』”’）】\"]*\s*"
)
_UNSPACED_END = re.compile(r"[。！？｡][」』”’）】\"]*$")
_LAST_WORD = re.compile(r"[^\s(\[\"'“„«»’‘]*$")
_NEXT_WORD = re.compile(r"\W{0,20}(\w+)")
_DOTTED = re.compile(r"(?:\w\.)+\w")  # p.m, U.S, z.B: without the last dot
# The dash of a list or of a speaker: models leave it out, so it is no part of the sentence.
_BULLET = re.compile(r"(?:[-‐–—•·▪‣*]\s+|[-‐–—](?=[^\W\d_]))+")
_CLAUSE_END = re.compile(r"[;:,–—、，；：)]\s*")
_SPACE = re.compile(r"\s+")


class Pair(NamedTuple):
    """A sentence and its translation, and where they begin in the two texts."""

    source: str
    target: str
    source_start: int
    target_start: int


class Translated(NamedTuple):
    """A translated text and its sentence pairs in order."""

    text: str
    pairs: list[Pair]


@dataclass(frozen=True)
class SplitText:
    """A text as sentences and what is between them.

    The text is gaps[0] + sentences[0] + gaps[1] + ... + sentences[n - 1] + gaps[n]. Gaps are white
    space, the dashes of lists, and what has no letter to translate.
    """

    sentences: list[str]
    gaps: list[str]

    def fill(self, translations: Iterable[str]) -> Iterator[tuple[str, str]]:
        """For each translation, the gap before it and itself, as soon as it is there.

        Sentences of a script without spaces get a space between them if the translation needs it.
        """
        needed = False
        for gap, source, target in zip(self.gaps, self.sentences, translations, strict=False):
            yield gap or (" " if needed else ""), target
            needed = bool(_UNSPACED_END.search(source)) and target[-1:] in {".", "!", "?"}

    def join(self, translations: Sequence[str]) -> Translated:
        """The text with translations in place of its sentences."""
        if len(translations) != len(self.sentences):
            raise ValueError(f"{len(translations)} translations of {len(self.sentences)} sentences")
        parts, pairs, read, written = list[str](), list[Pair](), 0, 0
        filled = zip(self.fill(translations), self.gaps, self.sentences, strict=False)
        for (gap, target), old_gap, source in filled:
            parts += (gap, target)
            pairs.append(Pair(source, target, read + len(old_gap), written + len(gap)))
            read += len(old_gap) + len(source)
            written += len(gap) + len(target)
        return Translated("".join(parts) + self.gaps[-1], pairs)


def is_short(text: str) -> bool:
    """Whether a text has at most LONGEST characters."""
    return len(text) <= LONGEST


def has_words(text: str) -> bool:
    """Whether there is a letter, so something to translate."""
    return any(map(str.isalpha, text))


def translate_text(
    text: str, translate: Translate, language: str = "", fits: Fits = is_short
) -> Translated:
    """Translate a text of any length in `language`, sentence by sentence.

    Line breaks and spacing are kept, so there are as many lines as before.
    """
    split = split_text(text, language, fits)
    return split.join(translate(split.sentences) if split.sentences else [])


def split_text(
    text: str, language: str = "", fits: Fits = is_short, *, lines: bool = True
) -> SplitText:
    """The sentences of a text. A sentence that does not fit is split at commas or spaces.

    Line breaks end sentences unless `lines` is False.
    """
    words, sentences, gaps, gap_start = words_of(language), list[str](), list[str](), 0
    for start, end in _spans(text, words, fits, lines):
        sentence = text[start:end]
        if not has_words(sentence):
            continue  # numbers and lines of dashes stay as they are
        start += len(sentence) - len(sentence.lstrip())
        bullet = _BULLET.match(text, start, end)
        start = bullet.end() if bullet else start
        sentence = text[start:end].rstrip()
        gaps.append(text[gap_start:start])
        sentences.append(sentence)
        gap_start = start + len(sentence)
    return SplitText(sentences, [*gaps, text[gap_start:]])


def _spans(text: str, words: Words, fits: Fits, lines: bool) -> Iterator[tuple[int, int]]:
    """Starts and ends of the sentences of all lines, or of the text as one line."""
    for line_start, line_end in _between(_LINE_BREAK, text) if lines else [(0, len(text))]:
        ends = list(_sentence_ends(text[line_start:line_end], words))
        cuts = [line_start, *(line_start + end for end in ends), line_end]
        for start, end in pairwise(cuts):
            yield from _fitting(text, start, end, fits)


def _between(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for match in pattern.finditer(text):
        yield start, match.start()
        start = match.end()
    yield start, len(text)


def _sentence_ends(line: str, words: Words) -> Iterator[int]:
    start = 0
    for match in _END.finditer(line):
        if match["marks"] is None or _is_end(line, start, match, words):
            yield match.end()
            start = match.end()


def _is_end(line: str, start: int, match: re.Match[str], words: Words) -> bool:
    """Whether a sentence that began at `start` ends at these marks."""
    following = _NEXT_WORD.match(line, match.end())
    after = following[1] if following else ""
    if after[:1].islower():
        return False
    if match["marks"] != "." or match["closing"]:
        return True
    last = _LAST_WORD.search(line, max(start, match.start() - 40), match.start())
    return _may_end(last[0] if last else "", after, words)


def _may_end(word: str, after: str, words: Words) -> bool:
    """Whether a sentence ends after `word` and a dot, given the word that follows."""
    lower, starts = word.lower(), after.lower() in words.starters
    if lower in words.either:
        return starts
    if lower in words.inner:
        return False
    if lower in words.before_number:
        return not after[:1].isdigit()
    if words.ordinals and lower.isdigit() and len(lower) <= 2:
        return starts
    if _DOTTED.fullmatch(lower):
        return starts
    return not (len(word) == 1 and word.isalpha())  # J. Smith, z. B.


def _fitting(text: str, start: int, end: int, fits: Fits) -> Iterator[tuple[int, int]]:
    """A span, halved until its parts fit: at clauses, else at spaces, else anywhere."""
    if end - start <= 1 or fits(text[start:end]):
        yield start, end
        return
    cut = _middle(text, start, end)
    yield from _fitting(text, start, cut, fits)
    yield from _fitting(text, cut, end, fits)


def _middle(text: str, start: int, end: int) -> int:
    """The best place to cut a span in two, near its middle."""
    middle, quarter = (start + end) // 2, (end - start) // 4
    for pattern in (_CLAUSE_END, _SPACE):
        found = pattern.finditer(text, middle - quarter, middle + quarter)
        cuts = [match.end() for match in found if start < match.end() < end]
        if cuts:
            return min(cuts, key=lambda cut: abs(cut - middle))
    before = range(middle, middle - quarter, -1)  # an accent stays with its letter
    return next((at for at in before if not unicodedata.combining(text[at])), middle)
