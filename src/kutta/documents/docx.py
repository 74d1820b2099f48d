"""Word documents: paragraphs, tables, headers, footers, notes and text boxes, with formatting."""

import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from docx import Document
from docx.opc.part import XmlPart
from docx.oxml.ns import qn
from docx.oxml.parser import parse_xml

from kutta.documents.formats import Job
from kutta.documents.inline import Part, translate_paragraphs
from kutta.errors import InputError

etree: Any = import_module("lxml.etree")  # it has no types

# A document beyond these limits is more likely a zip bomb.
MEMBERS = 10_000
XML_BYTES = 64 << 20
ALL_BYTES = 512 << 20

_NOTES = ("footnotes+xml", "endnotes+xml")  # parts that the library leaves as bytes
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_BREAKS = {qn("w:tab"): "\t", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-"}
_NOT_FORMAT = {qn("w:lang"), qn("w:noProof")}  # marks of a spelling checker
_LINK = "link"  # in the format of text that is a link


@dataclass
class _Span:
    """Text of one format: its elements <w:t>; none for a tab or a line break."""

    format: str
    text: str = ""
    elements: list[Any] = field(default_factory=list[Any])


def translate_file(source: Path, target: Path, job: Job) -> str:
    """Translate the text of a document; formatting goes to the words that correspond."""
    _check_archive(source)
    document, roots, notes = _open(source)
    paragraphs = [list(_spans(p)) for root in roots for p in root.iter(qn("w:p"))]
    paragraphs = [spans for spans in paragraphs if any(span.elements for span in spans)]
    parts = [_parts(spans) for spans in paragraphs]
    translated = translate_paragraphs(parts, job.translate, job.source, job.fits)
    for spans, texts in zip(paragraphs, translated, strict=True):
        for span, text in zip(spans, texts, strict=True):
            if span.elements and text != span.text:
                _write(span.elements, text)
    for part, root in notes:
        part._blob = etree.tostring(root, encoding="UTF-8", xml_declaration=True, standalone=True)
    document.save(str(target))
    return f"{len(paragraphs):,} paragraphs translated"


def _check_archive(source: Path) -> None:
    """Reject what is no archive, is too large once unpacked, or declares XML entities."""
    try:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
            xml = [one for one in members if one.filename.endswith((".xml", ".rels"))]
            sizes = sum(one.file_size for one in xml), sum(one.file_size for one in members)
            if len(members) > MEMBERS or sizes[0] > XML_BYTES or sizes[1] > ALL_BYTES:
                raise InputError(
                    f"{source} has {len(members):,} parts of {sizes[1] >> 20:,} MB unpacked, which "
                    f"is too much (at most {MEMBERS:,} parts, {XML_BYTES >> 20} MB of text, "
                    f"{ALL_BYTES >> 20} MB in all); split the document."
                )
            for one in xml:
                with archive.open(one) as file:
                    if b"<!DOCTYPE" in file.read(1 << 16):
                        raise InputError(
                            f"{source} declares XML entities (in {one.filename}), which Word "
                            "documents never do; save it again with a word processor."
                        )
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise _damaged(source, error) from error


def _open(source: Path) -> tuple[Any, list[Any], list[tuple[Any, Any]]]:
    """The document, the roots of its XML with text, and its notes as (part, root)."""
    try:
        document: Any = Document(str(source))
        parts: list[Any] = list(document.part.package.iter_parts())
        roots = [part.element for part in parts if isinstance(part, XmlPart)]
        notes = [
            (part, parse_xml(part.blob)) for part in parts if part.content_type.endswith(_NOTES)
        ]
        notes = [(part, root) for part, root in notes if not isinstance(part, XmlPart)]
    except InputError:
        raise
    except Exception as error:  # the library raises errors of any kind for damaged documents
        raise _damaged(source, error) from error
    return document, [*roots, *(root for _, root in notes)], notes


def _damaged(source: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).replace(str(source), "the file").split()) or type(error).__name__
    return InputError(
        f"{source} is not a valid Word document ({reason[:200]}); save it again as .docx."
    )


def _spans(paragraph: Any) -> Iterator[_Span]:
    """The text of a paragraph in spans of one format; text boxes inside it are left out."""
    last: _Span | None = None
    for element in paragraph.iter(qn("w:t"), *_BREAKS):
        run = element.getparent()
        if run.tag != qn("w:r") or next(run.iterancestors(qn("w:p")), None) is not paragraph:
            continue
        if element.tag in _BREAKS:
            if last:
                yield last
                last = None
            yield _Span("", _BREAKS[element.tag])
            continue
        format = _format(run)
        if last and last.format != format:
            yield last
            last = None
        last = last or _Span(format)
        last.text += element.text or ""
        last.elements.append(element)
    if last:
        yield last


def _format(run: Any) -> str:
    """The formatting of a run as text: its properties, and the link that it is in."""
    properties = run.find(qn("w:rPr"))
    children = [] if properties is None else list(properties)
    marks = sorted(
        etree.tostring(child, encoding="unicode", with_tail=False)
        for child in children
        if child.tag not in _NOT_FORMAT
    )
    link = next(run.iterancestors(qn("w:hyperlink")), None)
    return "".join(marks) + ("" if link is None else f"{_LINK} {id(link)}")


def _parts(spans: list[_Span]) -> list[Part]:
    """The format of most of the text is plain, others and links are marked; breaks are fixed."""
    sizes = Counter[str]()
    for span in spans:
        counted = span.elements and _LINK not in span.format
        sizes[span.format] += len(span.text) if counted else 0
    usual = sizes.most_common(1)[0][0]
    return [
        Part(span.text, "fixed" if not span.elements else _role(span.format == usual))
        for span in spans
    ]


def _role(is_usual: bool) -> Any:
    return "plain" if is_usual else "marked"


def _write(elements: list[Any], text: str) -> None:
    """Put the text into the first element and empty the others."""
    for element in elements:
        element.text = ""
    elements[0].text = text
    elements[0].set(_SPACE, "preserve")
