"""Subtitles: times and numbers stay, the text is translated and wrapped again."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

import srt

from kutta.documents.formats import Job
from kutta.documents.inline import Part, translate_paragraphs
from kutta.errors import InputError

WIDTH = 42  # characters of a line, the usual limit of subtitles

_TAG = re.compile(r"(</?[a-zA-Z][^<>]*>|\{\\[^{}]*\})")  # <i>, <font color="red">, {\an8}
_DASH = re.compile(r"\s*(?:<[^<>]+>)*\s*[-‐–—]")  # a line of another speaker


def translate_file(source: Path, target: Path, job: Job) -> str:
    """Translate the text of subtitles, each by itself."""
    text, mark = _read(source)
    try:
        subtitles = list(srt.parse(text))
    except (srt.SRTParseError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{source} is not a valid SRT file ({reason[:200]}); correct it there."
        ) from error
    turns = [_turns(subtitle.content) for subtitle in subtitles]
    tagged = [_TAG.split(turn) for some in turns for turn in some]
    paragraphs = [_parts(one) for one in tagged]
    new = translate_paragraphs(paragraphs, job.translate, job.source, job.fits, lines=False)
    texts = ("".join(_with_tags(one, words)) for one, words in zip(tagged, new, strict=True))
    for subtitle, some in zip(subtitles, turns, strict=True):
        subtitle.content = "\n".join(wrap(next(texts)) for _ in some)
    eol = "\r\n" if "\r\n" in text else "\n"
    composed = srt.compose(subtitles, reindex=False, eol=eol)
    target.write_bytes(mark + composed.encode("utf-8"))
    return f"{len(subtitles):,} subtitles translated"


def _read(source: Path) -> tuple[str, bytes]:
    """The text of a file, and its byte order mark."""
    data = source.read_bytes()
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        return data[len(mark) :].decode("utf-8"), mark
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source} is not valid UTF-8 (byte {error.start + 1}); save the file as UTF-8."
        ) from error


def _turns(content: str) -> list[str]:
    """The text of a subtitle: one string, or one for each speaker if lines begin with dashes."""
    lines = content.replace("\r\n", "\n").split("\n")
    turns = lines[:1]
    for line in lines[1:]:
        if _DASH.match(line):
            turns.append(line)
        else:
            turns[-1] += f" {line}"
    return turns


def _parts(tagged: list[str]) -> list[Part]:
    """The text between tags: plain outside, marked inside; tags of position change nothing."""
    parts, depth = list[Part](), 0
    for number, text in enumerate(tagged):
        if number % 2 == 0:
            parts.append(Part(text, "marked" if depth else "plain"))
        elif text.startswith("<"):
            depth = max(0, depth + (-1 if text.startswith("</") else 1))
    return parts


def _with_tags(tagged: list[str], words: list[str]) -> Iterator[str]:
    """The new text between the tags of a turn, whose odd elements are tags."""
    for number, text in enumerate(tagged):
        yield text if number % 2 else words[number // 2]


def wrap(text: str, width: int = WIDTH) -> str:
    """As few lines as `width` allows, of about the same length; tags have no length."""
    words = _TAG.sub(lambda tag: tag[0].replace(" ", "\0"), text).split()
    lengths = [len(_TAG.sub("", word.replace("\0", " "))) for word in words]
    fewest, longest = len(_lines(lengths, width)), max(lengths, default=width)
    while longest < width and len(_lines(lengths, width - 1)) == fewest:
        width -= 1
    lines = [" ".join(words[start:end]) for start, end in _lines(lengths, width)]
    return "\n".join(lines).replace("\0", " ")


def _lines(lengths: list[int], width: int) -> list[tuple[int, int]]:
    """The first and last words of lines of at most `width` characters."""
    lines, start, used = list[tuple[int, int]](), 0, -1
    for number, length in enumerate(lengths):
        if number > start and used + 1 + length > width:
            lines.append((start, number))
            start, used = number, -1
        used += 1 + length
    return [*lines, (start, len(lengths))]
