"""HTML: its text and a few attributes are translated, everything else stays byte for byte.

The page is not parsed into a tree and written again, which would change what is not text. It is cut
into tokens in linear time; the parser of the standard library takes a minute for 36 kB of `<a `.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape, unescape
from pathlib import Path
from typing import NamedTuple

from kutta.documents.formats import Job
from kutta.documents.inline import Part, Role, translate_paragraphs
from kutta.documents.sentences import Fits, Translate, is_short
from kutta.errors import InputError


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Elements within a sentence; all others end it.
INLINE = _names(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark q s samp "
    "small span strike strong sub sup time tt u var wbr"
)
# Elements whose contents are not translated, and those of them that have no tags inside.
UNTOUCHED = _names(
    "script style code kbd samp var textarea svg math template iframe object noembed xmp"
)
RAW_TEXT = _names("script style textarea iframe noembed xmp")
VOID = _names("area base br col embed hr img input link meta source track wbr")
ATTRIBUTES = _names("alt title placeholder aria-label summary")
META = _names(
    "description keywords og:title og:description twitter:title twitter:description"
)  # the names of meta elements whose content is translated

_TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/><]*)((?:[^<>"']|"[^"]*"|'[^']*')*+)>""")
_ATTRIBUTE = re.compile(r"""([^\s=/"'<>]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'<>]+))?""")
_CHARSET = re.compile(rb"""<meta[^>]{1,200}?charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)


class _Token(NamedTuple):
    """A part of the page; `name` is that of a tag in lower case, else empty."""

    raw: str
    name: str = ""
    is_end: bool = False
    is_text: bool = False
    attributes: str = ""  # of a tag, as written


@dataclass
class _Block:
    """Text up to the next element that is not inline: places in the page, and their text."""

    places: list[int] = field(default_factory=list[int])
    parts: list[Part] = field(default_factory=list[Part])
    lines: bool = False  # whether line breaks count, in <pre>


def translate_html(
    page: str, translate: Translate, language: str = "", fits: Fits = is_short
) -> str:
    """A page or a fragment of HTML with its text translated."""
    reader = _Reader()
    for token in _tokens(page):
        reader.read(token)
    reader.end_block()
    out = reader.out
    for lines in (False, True):
        blocks = [block for block in reader.blocks if block.lines == lines]
        paragraphs = [block.parts for block in blocks]
        translated = translate_paragraphs(paragraphs, translate, language, fits, lines=lines)
        for block, texts in zip(blocks, translated, strict=True):
            for place, part, text in zip(block.places, block.parts, texts, strict=True):
                if text != part.text:
                    out[place] = escape(text, quote=place in reader.quoted)
                    out[place] = out[place].replace("\u00a0", "&nbsp;")
    return "".join(out)


def translate_file(source: Path, target: Path, job: Job) -> str:
    """Translate a file of HTML in the encoding that it declares, by default UTF-8."""
    data = source.read_bytes()
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    declared = None if mark else _CHARSET.search(data[:4096])
    name = declared[1].decode("ascii") if declared else "utf-8"
    try:
        encoding = codecs.lookup(name).name
        page = data[len(mark) :].decode(encoding)
    except (LookupError, UnicodeError) as error:
        raise InputError(
            f"{source} is not valid {name} ({error}); save it as UTF-8, and name that in its meta "
            "charset."
        ) from error
    new = translate_html(page, job.translate, job.source, job.fits)
    target.write_bytes(mark + new.encode(encoding, "xmlcharrefreplace"))
    return "1 page translated"


def _tokens(page: str) -> Iterator[_Token]:
    """The parts of a page; joined, they are the page."""
    at = 0
    while at < len(page):
        start = page.find("<", at)
        if start != at:
            start = len(page) if start < 0 else start
            yield _Token(page[at:start], is_text=True)
        elif page.startswith(("<!", "<?"), at):  # comment, doctype, processing instruction
            closing = "-->" if page.startswith("<!--", at) else ">"
            end = page.find(closing, at + (4 if closing == "-->" else 2))
            start = len(page) if end < 0 else end + len(closing)
            yield _Token(page[at:start])
        elif tag := _TAG.match(page, at):
            name, start = tag[2].lower(), tag.end()
            yield _Token(tag[0], name, bool(tag[1]), attributes=tag[3])
            if name in RAW_TEXT and not tag[1] and not tag[3].endswith("/"):
                end = re.compile(f"</{name}", re.IGNORECASE).search(page, start)
                contents = page[start : end.start() if end else len(page)]
                yield _Token(contents)
                start += len(contents)
        else:
            start = at + 1
            yield _Token("<", is_text=True)
        at = start


class _Reader:
    """Collects the tokens of a page, and of them the blocks of text to translate."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.blocks: list[_Block] = []
        self.quoted: set[int] = set()  # places within quotes: attributes
        self.block = _Block()
        self.inline = 0  # open inline elements of this block
        self.pre = 0
        self.untouched = ""  # the element whose contents are not translated
        self.nested = 0  # its open elements of the same name

    def read(self, token: _Token) -> None:
        if token.is_text:
            self._read_text(token)
        elif token.name:
            self._read_tag(token)
        else:
            self.out.append(token.raw)

    def end_block(self) -> None:
        """An element that is not inline begins or ends."""
        if self.block.parts:
            self.blocks.append(self.block)
        self.block, self.inline = _Block(lines=self.pre > 0), 0

    def _read_text(self, token: _Token) -> None:
        role: Role = "marked" if self.inline else "plain"
        if self.untouched:
            role = "fixed"
        block, last = self.block, len(self.out) - 1
        if block.places[-1:] == [last]:  # a stray < makes several tokens of one text
            self.out[last] += token.raw
            block.parts[-1] = Part(block.parts[-1].text + unescape(token.raw), role)
            return
        if not self.untouched or self.untouched in INLINE:
            block.places.append(len(self.out))
            block.parts.append(Part(unescape(token.raw), role))
        self.out.append(token.raw)

    def _read_tag(self, token: _Token) -> None:
        name, attributes = token.name, dict[str, str]()
        if not token.is_end:
            found = (match for match in _ATTRIBUTE.finditer(token.attributes) if match[2])
            attributes = {m[1].lower(): unescape(m[2].strip("\"'")) for m in found}
        if name == "pre":
            self.pre = max(0, self.pre + (-1 if token.is_end else 1))
        if name not in INLINE:
            self.end_block()
        elif name not in VOID:
            self.inline = max(0, self.inline + (-1 if token.is_end else 1))
        if self.untouched or token.is_end:
            self.out.append(token.raw)
        else:
            self._write_tag(token, attributes)
        self._note_untouched(token, attributes)

    def _note_untouched(self, token: _Token, attributes: dict[str, str]) -> None:
        """Keep track of the element whose contents are not translated."""
        name = token.name
        closed = name in VOID or token.attributes.endswith("/")
        if self.untouched:
            if name == self.untouched and not closed:
                self.nested += -1 if token.is_end else 1
                self.untouched = name if self.nested else ""
        elif not token.is_end and not closed:
            refused = attributes.get("translate", "").lower() == "no"
            refused |= "notranslate" in attributes.get("class", "").split()
            if refused or name in UNTOUCHED:
                self.untouched, self.nested = name, 1

    def _write_tag(self, token: _Token, attributes: dict[str, str]) -> None:
        """The tag, with the values of its attributes that are translated as places of their own."""
        wanted = ATTRIBUTES
        if token.name == "meta":
            named = attributes.get("name", attributes.get("property", "")).lower()
            wanted = {"content"} if named in META else set[str]()
        if attributes.get("translate", "").lower() == "no":
            wanted = set[str]()
        start, offset = 0, token.raw.find(token.attributes, 1 + len(token.name))
        for match in _ATTRIBUTE.finditer(token.attributes):
            value = match[2]
            if match[1].lower() in wanted and value and value[0] in "\"'" and value[1:-1].strip():
                first, last = offset + match.start(2) + 1, offset + match.end(2) - 1
                self.out.append(token.raw[start:first])
                part = Part(unescape(value[1:-1]))
                self.blocks.append(_Block([len(self.out)], [part]))
                self.quoted.add(len(self.out))
                self.out.append(token.raw[first:last])
                start = last
        self.out.append(token.raw[start:])
