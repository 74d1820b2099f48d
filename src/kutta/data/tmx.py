"""Sentence pairs of a TMX file (translation memory exchange), read as a stream.

No entity is expanded and nothing outside of the file is read.
"""

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from kutta.config.data import language_of
from kutta.errors import InputError

etree: Any = import_module("lxml.etree")  # it has no types

LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
UNSAFE = "{} uses XML entities of its own, which are not expanded; write their text out."


def parser_options() -> dict[str, Any]:
    """The options of all XML parsers: no entities, no network, no DTD."""
    return {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}


def read_tmx(
    stream: Iterable[bytes], name: str, source: str, target: str
) -> Iterator[tuple[str, str]]:
    """The pairs of two languages, white space made single spaces; `name` is used in errors.

    Units that lack one of the languages are skipped.
    """
    parser: Any = etree.XMLPullParser(events=("end",), tag="tu", **parser_options())
    try:
        for data in stream:
            parser.feed(data)
            yield from _pairs(parser, name, source, target)
        parser.close()
        yield from _pairs(parser, name, source, target)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise InputError(
            f"{name} is not valid XML ({' '.join(str(error).split())}); copy or export it again."
        ) from error


def language_in(unit: Any, language: str) -> Any:
    """The segment of a unit in a language, exactly or by its main code (en for en-GB), or None."""
    codes = [
        ((one.get(LANGUAGE) or one.get("lang") or "").lower(), one) for one in unit.iter("tuv")
    ]
    exact = [one for code, one in codes if code == language.lower()]
    near = [one for code, one in codes if language_of(code) == language_of(language.lower())]
    found = (exact or near or [None])[0]
    return None if found is None else found.find("seg")


def _pairs(parser: Any, name: str, source: str, target: str) -> Iterator[tuple[str, str]]:
    for _, unit in parser.read_events():
        one, other = (language_in(unit, code) for code in (source, target))
        if one is not None and other is not None:
            yield _text(one, name), _text(other, name)
        unit.clear()
        while unit.getprevious() is not None:  # what was read is not kept in memory
            del unit.getparent()[0]


def _text(segment: Any, name: str) -> str:
    """The text of a segment, without codes such as <ph>; <hi> is text."""
    if any(True for _ in segment.iter(etree.Entity)):
        raise InputError(UNSAFE.format(name))
    return " ".join("".join(_texts(segment)).split())


def _texts(element: Any) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if child.tag == "hi":
            yield from _texts(child)
        yield child.tail or ""
