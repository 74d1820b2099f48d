"""Lines that are too long for a model: split into segments, whose translations are joined again."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

SHORTEST_LIMIT, LONGEST_LIMIT = 256, 4096  # tokens

# Where a line is split, the best places first. A segment ends behind the match.
_PLACES = (
    re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[”’」』）]*\s*|[।؟]\s*"),  # ends of sentences
    re.compile(r"[,;:–—]+\s+|[，；：、،؛]\s*"),  # ends of clauses
    re.compile(r"\s+"),
)
_JOINERS = "\u200d\ufe0e\ufe0f"  # between characters that are shown as one

Scored = tuple[str, float]


@dataclass(frozen=True)
class Segment:
    """A part of a line; `joint` is what stands before its translation: a space or nothing."""

    text: str
    joint: str = ""


def longest_source(max_length: int) -> int:
    """The tokens of a line above which it is split: as many as the model was trained with.

    Models of short sentences generalise to lines of SHORTEST_LIMIT tokens better than parts of
    sentences can be translated. The time of attention grows with the square of LONGEST_LIMIT.
    """
    return min(max(max_length, SHORTEST_LIMIT), LONGEST_LIMIT)


def split(text: str, count: Callable[[str], int], limit: int) -> list[Segment]:
    """The segments of a line; `count` is the number of tokens of a text.

    They have at most `limit` tokens, up to what two halves of a word have in common, and hold
    every character but the white space between them.
    """
    segments: list[Segment] = []
    joint = ""
    for part in _parts(text, count, limit, _PLACES):
        if part.strip():
            segments.append(Segment(part.strip(), joint if segments else ""))
            joint = ""
        joint = " " if joint or part[-1:].isspace() else ""
    return segments or [Segment(text)]


def join(found: Sequence[tuple[str, list[Scored]]], add: bool) -> list[Scored]:
    """The translations of a line from those of its segments, each with its joint.

    The k-th best of the line has the k-th best of each segment. Its score is the mean of
    theirs, or the sum where these are log-probabilities (`add`).
    """
    if len(found) == 1:
        return found[0][1]
    joined: list[Scored] = []
    for rank in range(max(len(answers) for _, answers in found)):
        best = [(joint, *answers[min(rank, len(answers) - 1)]) for joint, answers in found]
        text = "".join(f"{joint}{translated}" for joint, translated, _ in best)
        total = sum(score for *_, score in best)
        joined.append((text.strip(), total if add else total / len(best)))
    return joined


def _parts(
    text: str, count: Callable[[str], int], limit: int, places: Sequence[re.Pattern[str]]
) -> Iterator[str]:
    """The parts of a text, which add up to it, split at the first of these places, else further."""
    tokens = count(text)
    if tokens <= limit or len(text) == 1:
        yield text
        return
    fragments = [*_behind(text, places[0])] if places else [*_equal(text, -(-tokens // limit))]
    current, size = "", 0
    for fragment in fragments:
        length = count(fragment)
        if current and size + length > limit:
            yield current
            current, size = "", 0
        if length > limit:
            if places or len(fragments) > 1:
                yield from _parts(fragment, count, limit, places[1:])
            else:
                yield fragment  # one character of many tokens
            continue
        current, size = current + fragment, size + length
    if current:
        yield current


def _behind(text: str, place: re.Pattern[str]) -> Iterator[str]:
    """The text, split behind every match."""
    start = 0
    for match in place.finditer(text):
        yield text[start : match.end()]
        start = match.end()
    if start < len(text):
        yield text[start:]


def _equal(text: str, parts: int) -> Iterator[str]:
    """The text in about this many parts, at least two, none of them amid what is shown as one."""
    width = max(1, len(text) // max(2, parts))
    start = 0
    while start < len(text):
        end = start + width
        while end < len(text) and end < start + 2 * width + 8 and _continues(text, end):
            end += 1
        yield text[start:end]
        start = end


def _continues(text: str, at: int) -> bool:
    """Whether the character belongs to the one before it: an accent, or joined emoji."""
    return (
        unicodedata.combining(text[at]) > 0 or text[at] in _JOINERS or text[at - 1] == _JOINERS[0]
    )
