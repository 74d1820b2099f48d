"""Paragraphs in which parts differ: links and emphasis of HTML, runs of a word processor.

A sentence is translated as a whole, because its parts alone translate badly. Its parts are then
found in the translation: a part that differs is also translated by itself, and cut out where that
translation occurs, or most of its words. If they do not occur, each part of the sentence gets its
own translation.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from kutta.documents.sentences import Fits, Translate, has_words, is_short, split_text

Role = Literal["plain", "marked", "fixed"]
_FINAL = ".!?。！？"
_WORD = re.compile(r"\w+")
_STEM = 4  # letters that two words have in common if they are forms of one


class Part(NamedTuple):
    """A part of a paragraph: plain text, text that differs, or text that is not translated."""

    text: str
    role: Role = "plain"


@dataclass
class _Fragment:
    """What one sentence has of a part."""

    part: int
    text: str
    role: Role

    @property
    def is_located(self) -> bool:
        """Whether it is looked for in the translation of its sentence."""
        if self.role == "fixed":
            return bool(self.text.strip())
        return self.role == "marked" and any(map(str.isalnum, self.text))

    @property
    def is_translated(self) -> bool:
        return self.role != "fixed" and has_words(self.text)


@dataclass
class _Text:
    """A sentence or a gap between two, as the fragments it has of the parts."""

    fragments: list[_Fragment]
    new: list[str] | None  # of the fragments; None until a sentence is translated

    @property
    def whole(self) -> str:
        return _one_line("".join(fragment.text for fragment in self.fragments))


def translate_paragraphs(
    paragraphs: Iterable[Sequence[Part]],
    translate: Translate,
    language: str = "",
    fits: Fits = is_short,
    *,
    lines: bool = True,
) -> list[list[str]]:
    """The new text of each part of each paragraph; spacing between sentences stays.

    Line breaks end sentences unless `lines` is False.
    """
    paragraphs = list(paragraphs)
    read = [list(_read(parts, language, fits, lines)) for parts in paragraphs]
    sentences = [text for texts in read for text in texts if text.new is None]
    known: dict[str, str] = {}
    _look_up(known, (need for text in sentences for need in _first_needs(text)), translate)
    for text in sentences:
        text.new = _place(text.fragments, known[text.whole], known)
    missed = [text for text in sentences if text.new is None]
    alone = (fragment for text in missed for fragment in text.fragments if fragment.is_translated)
    _look_up(known, (_one_line(fragment.text) for fragment in alone), translate)
    for text in missed:
        text.new = [_alone(fragment, known) for fragment in text.fragments]
    return [_write(parts, texts) for parts, texts in zip(paragraphs, read, strict=True)]


def _read(parts: Sequence[Part], language: str, fits: Fits, lines: bool) -> Iterator[_Text]:
    """The gaps and sentences of a paragraph in order."""
    split = split_text("".join(part.text for part in parts), language, fits, lines=lines)
    cursor = _Cursor(parts)
    for gap, sentence in zip(split.gaps, [*split.sentences, ""], strict=True):
        between = list(cursor.take(len(gap)))
        yield _Text(between, [fragment.text for fragment in between])
        fragments = list(cursor.take(len(sentence)))
        changes = any(fragment.is_translated for fragment in fragments)
        yield _Text(fragments, None if changes else [fragment.text for fragment in fragments])


class _Cursor:
    """Reads the concatenated parts a number of characters at a time."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts, self.part, self.offset = parts, 0, 0

    def take(self, count: int) -> Iterator[_Fragment]:
        while count:
            part = self.parts[self.part]
            text = part.text[self.offset : self.offset + count]
            if text:
                yield _Fragment(self.part, text, part.role)
            count -= len(text)
            self.offset += len(text)
            if self.offset == len(part.text) and count:
                self.part, self.offset = self.part + 1, 0


def _first_needs(text: _Text) -> Iterator[str]:
    """What is translated first: the sentence, and its parts that are to be found in it."""
    yield text.whole
    if len(text.fragments) > 1:
        yield from (_one_line(p.text) for p in text.fragments if p.is_located and p.is_translated)


def _look_up(known: dict[str, str], texts: Iterable[str], translate: Translate) -> None:
    """Translate what is not known yet, each text once."""
    new = [text for text in dict.fromkeys(texts) if text not in known]
    known.update(zip(new, translate(new), strict=True) if new else ())


def _place(fragments: list[_Fragment], target: str, known: dict[str, str]) -> list[str] | None:
    """The translation of a sentence, cut into its fragments; None if one is not found in it."""
    if len(fragments) == 1:
        return [target]
    spans: list[tuple[int, int] | None] = []
    at, length, read = 0, sum(len(fragment.text) for fragment in fragments), 0
    for fragment in fragments:
        expected = len(target) * read / length
        read += len(fragment.text)
        span = _locate(fragment, known, target, at, expected) if fragment.is_located else None
        if fragment.is_located and span is None:
            return None
        if span is None and spans and spans[-1] is None:
            return None  # nothing says where one of them ends
        spans.append(span)
        at = span[1] if span else at
    cuts = [0]
    for fragment, (one, other) in zip(fragments, pairwise(spans), strict=False):
        cut = one[1] if one else other[0] if other else len(target)
        spaced = one and fragment.text[-1:].isspace() and target[cut : cut + 1].isspace()
        cuts.append(cut + 1 if spaced else cut)
    cuts.append(len(target))
    return [target[start:end] for start, end in pairwise(cuts)]


def _locate(
    fragment: _Fragment, known: dict[str, str], target: str, at: int, expected: float
) -> tuple[int, int] | None:
    """Where a fragment is in the translation of its sentence, from `at`; nearest to `expected`."""
    text = _part(fragment, known) if fragment.is_translated else _one_line(fragment.text)
    if not text:
        return None
    edges = [r"\b" if re.match(r"\w", one) else "" for one in (text[0], text[-1])]
    pattern = f"{edges[0]}{re.escape(text)}{edges[1]}"
    compiled = re.compile(pattern, re.IGNORECASE if fragment.is_translated else 0)
    found = [match.span() for match in compiled.finditer(target, at)]
    if found:
        return min(found, key=lambda span: abs(span[0] - expected))
    return _locate_words(text, target, at) if fragment.is_translated else None


def _locate_words(text: str, target: str, at: int) -> tuple[int, int] | None:
    """The longest run of words of a text in the target, from `at`, also in other forms.

    It has some letters, and a third of the length of the text.
    """
    words = [match[0].casefold() for match in _WORD.finditer(text)]
    places = list(_WORD.finditer(target, at))
    runs: dict[int, int] = {}  # by the end of a run in the words: where it begins in the places
    best, best_length = None, max(_STEM, len(text) / 3) - 1
    for number, place in enumerate(places):
        here = place[0].casefold()
        alike = [end for end, word in enumerate(words) if _is_form(word, here)]
        runs = {end: runs.get(end - 1, number) for end in alike}
        for first in runs.values():
            start, end = places[first].start(), place.end()
            if end - start > best_length:
                best, best_length = (start, end), end - start
    return best


def _is_form(one: str, other: str) -> bool:
    """Whether two words are the same, or begin with the same letters and end differently."""
    if one == other:
        return True
    shorter = min(len(one), len(other))
    same = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    return same >= _STEM and same >= 0.6 * max(len(one), len(other))


def _part(fragment: _Fragment, known: dict[str, str]) -> str:
    """The translation of a fragment by itself, which is not a sentence, so it has no full stop."""
    text = _one_line(fragment.text)
    return known[text].strip() if text[-1] in _FINAL else known[text].strip().rstrip(_FINAL)


def _write(parts: Sequence[Part], texts: list[_Text]) -> list[str]:
    """The new texts of the parts of a paragraph."""
    written: list[list[str]] = [[] for _ in parts]
    for text in texts:
        for fragment, new in zip(text.fragments, text.new or (), strict=True):
            written[fragment.part].append(new)
    return ["".join(some) for some in written]


def _alone(fragment: _Fragment, known: dict[str, str]) -> str:
    """A fragment translated by itself, with the white space around it."""
    if not fragment.is_translated:
        return fragment.text
    start = len(fragment.text) - len(fragment.text.lstrip())
    end = len(fragment.text.rstrip())
    return fragment.text[:start] + _part(fragment, known) + fragment.text[end:]


def _one_line(text: str) -> str:
    return " ".join(text.split())
