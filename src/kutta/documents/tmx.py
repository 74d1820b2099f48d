"""Translation memories: units without a target segment get one."""

from collections.abc import Iterator
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

from kutta.data.tmx import LANGUAGE, UNSAFE, language_in, parser_options
from kutta.documents.formats import Job
from kutta.documents.inline import Part, Role, translate_paragraphs
from kutta.errors import InputError

etree: Any = import_module("lxml.etree")  # it has no types

Slot = tuple[Any, str]  # an element, and which of its texts: "text" or "tail"


def translate_file(source: Path, target: Path, job: Job) -> str:
    """Fill the missing and empty segments of the target language."""
    tree = _read(source)
    units = [unit for unit in tree.iter("tu") if _needs(unit, job)]
    without = sum(1 for unit in tree.iter("tu") if language_in(unit, job.source) is None)
    segments = [_add_segment(unit, job) for unit in units]
    slots = [list(_slots(segment)) for segment in segments]
    paragraphs = [[Part(_get(slot), role) for slot, role in some] for some in slots]
    translated = translate_paragraphs(paragraphs, job.translate, job.source, job.fits, lines=False)
    for some, texts in zip(slots, translated, strict=True):
        for ((element, name), _), text in zip(some, texts, strict=True):
            setattr(element, name, text)
    tree.write(str(target), encoding=tree.docinfo.encoding or "UTF-8", xml_declaration=True)
    left = f"; {without:,} have no segment in {job.source}" if without else ""
    return f"{len(units):,} missing segments filled{left}"


def _read(source: Path) -> Any:
    """The tree of a file; nothing outside of it is read, and no entity is expanded."""
    try:
        tree: Any = etree.parse(str(source), etree.XMLParser(**parser_options()))
    except (etree.XMLSyntaxError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{source} is not valid XML ({reason}); correct it or export it again."
        ) from error
    if tree.getroot().tag != "tmx":
        raise InputError(
            f"{source} has the root element {tree.getroot().tag!r}, so it is not a TMX file; "
            "export it again as TMX."
        )
    if any(True for _ in tree.iter(etree.Entity)):
        raise InputError(UNSAFE.format(source))
    return tree


def _needs(unit: Any, job: Job) -> bool:
    """Whether there is a source segment and no translation of it."""
    source, target = (language_in(unit, code) for code in (job.source, job.target))
    return source is not None and (target is None or not "".join(target.itertext()).strip())


def _add_segment(unit: Any, job: Job) -> Any:
    """The segment to fill: a copy of the source segment, with its inline elements."""
    copy, target = deepcopy(language_in(unit, job.source)), language_in(unit, job.target)
    if target is None:
        before = unit.findall("tuv")[-1]
        variant: Any = etree.SubElement(unit, "tuv", {LANGUAGE: job.target})
        variant.tail, before.tail = before.tail, (unit.text or before.tail)
        variant.append(copy)
        copy.tail = None
    else:
        copy.tail = target.tail
        target.getparent().replace(target, copy)
    return copy


def _slots(element: Any, role: Role = "plain") -> Iterator[tuple[Slot, Role]]:
    """The texts of a segment in order. Only <hi> has text to translate; others are codes.

    Text between a code that begins and its end is marked, as in <hi>.
    """
    yield (element, "text"), role
    depth = 0
    for child in element:
        if child.tag == "hi":
            yield from _slots(child, "marked")
        depth = max(0, depth + {"bpt": 1, "ept": -1}.get(child.tag, 0))
        yield (child, "tail"), "marked" if depth else role


def _get(slot: Slot) -> str:
    return getattr(*slot) or ""
