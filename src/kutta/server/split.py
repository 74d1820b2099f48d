"""Text as sentences and what is between them, so that a translation has the layout of the source.

`split(text, format)` is all that the rest of the server knows. The text is
gaps[0] + sentences[0] + gaps[1] + ... + sentences[n - 1] + gaps[n], escaped again where the format
is HTML.
"""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LONGEST = 500  # characters of a sentence; what is longer is divided at clauses or words

# The end of a sentence: marks and closing quotes, then white space and no small letter. Chinese and
# Japanese marks need no white space.
_END = re.compile(
    r"(?:[.!?…]+[\"'”’»«)\]]*(?P<space>\s+)(?![a-zß-öø-ÿ,;])|[。！？]+[」』”’）]*(?P<none>\s*))"
)
_LINE = re.compile(r"[^\r\n]+")
_LETTER = re.compile(r"[^\W\d_]")
_CLAUSE = re.compile(r"[,;:–—]\s+")
_WORD = re.compile(r"\s+")
# Words whose dot does not end a sentence, as they are written.
_INNER = frozenset(
    {"Mr", "Mrs", "Ms", "Dr", "Prof", "St", "No", "Nr", "vs", "ca", "bzw", "ggf", "Hr", "Fr"}
    | {"Str", "Abb", "Fig", "Mme", "Sr", "Sra", "e.g", "i.e", "z.B", "d.h", "u.a", "z.T"}
)
_LAST_WORD = re.compile(r"[^\s(\[\"'“„»«]*$")
_TAG = re.compile(r"<[/!?]?([a-zA-Z][\w:-]*)?(?:[^<>\"']|\"[^\"<]*\"|'[^'<]*')*>")
_BLIND = frozenset({"script", "style", "code", "pre", "textarea"})  # their text is not prose


@dataclass(frozen=True)
class Split:
    """The sentences of a text and the gaps around them."""

    gaps: list[str]
    sentences: list[str]
    escaped: bool = False

    def join(self, translations: Sequence[str]) -> str:
        """The text with translations in the places of its sentences."""
        written = (html.escape(t, quote=False) if self.escaped else t for t in translations)
        after = zip(written, self.gaps[1:], strict=True)
        return self.gaps[0] + "".join(text + gap for text, gap in after)


def split(text: str, form: str = "text") -> Split:
    """The sentences of plain text or of HTML."""
    pieces = _html(text) if form == "html" else _plain(text)
    gaps, sentences = [""], list[str]()
    for piece, prose in pieces:
        if prose:
            sentences.append(html.unescape(piece) if form == "html" else piece)
            gaps.append("")
        else:
            gaps[-1] += piece
    return Split(gaps, sentences, form == "html")


def _plain(text: str) -> Iterator[tuple[str, bool]]:
    """The pieces of a text, each with whether it is a sentence; together they are the text."""
    done = 0
    for line in _LINE.finditer(text):
        yield text[done : line.start()], False
        start = line.start()
        for end in (*_ends(line[0]), len(line[0])):
            yield from _trimmed(text[start : line.start() + end])
            start = line.start() + end
        done = line.end()
    yield text[done:], False


def _ends(line: str) -> Iterator[int]:
    """Where the sentences of a line end, the last excepted."""
    for mark in _END.finditer(line):
        word = _LAST_WORD.search(line, 0, mark.start())
        before = word[0] if word else ""
        dot = line[mark.start()] == "." and line[mark.start() : mark.start() + 2] != ".."
        initial = len(before) == 1 and before.isupper()
        if mark.end() < len(line) and not (dot and (initial or before in _INNER)):
            yield mark.end()


def _trimmed(piece: str) -> Iterator[tuple[str, bool]]:
    """A sentence without the white space around it, divided where it is too long."""
    bare = piece.strip()
    if not _LETTER.search(bare):  # numbers and signs are the same in every language
        yield piece, False
        return
    start = piece.index(bare[0])
    yield piece[:start], False
    yield from _divided(bare)
    yield piece[start + len(bare) :], False


def _divided(sentence: str) -> Iterator[tuple[str, bool]]:
    while len(sentence) > LONGEST:
        cut = _last(_CLAUSE, sentence) or _last(_WORD, sentence) or LONGEST
        head = sentence[:cut]
        yield head.rstrip(), True
        yield head[len(head.rstrip()) :], False
        sentence = sentence[cut:]
    yield sentence, True


def _last(pattern: re.Pattern[str], sentence: str) -> int | None:
    """The end of the last match that leaves two pieces of a sensible length."""
    ends = [m.end() for m in pattern.finditer(sentence, LONGEST // 3, LONGEST)]
    return ends[-1] if ends and ends[-1] < len(sentence) else None


def _html(text: str) -> Iterator[tuple[str, bool]]:
    """The pieces of HTML: tags, comments and the content of scripts stay as they are."""
    at = 0
    for start, end in _markup(text):
        yield from _plain(text[at:start])
        yield text[start:end], False
        at = end
    yield from _plain(text[at:])


def _markup(text: str) -> Iterator[tuple[int, int]]:
    """Where tags, comments and elements without prose begin and end."""
    at = 0
    while (start := text.find("<", at)) >= 0:
        tag = _TAG.match(text, start)
        if text.startswith("<!--", start):
            end = text.find("-->", start)
            at = len(text) if end < 0 else end + 3
        elif tag:
            at = tag.end()
            opening = not tag[0].startswith("</")
            if opening and (name := (tag[1] or "").lower()) in _BLIND:
                close = re.compile(rf"</{name}\b", re.IGNORECASE).search(text, at)
                at = close.start() if close else len(text)
        else:
            at = start + 1  # a lone < is text
            continue
        yield start, at
