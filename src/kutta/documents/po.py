"""Message catalogues of gettext: untranslated messages are filled and marked fuzzy."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polib

from kutta.documents.formats import Job
from kutta.documents.inline import Part, Role, translate_paragraphs
from kutta.documents.placeholders import (
    PLACEHOLDER,
    Scored,
    keeps_placeholders,
    search_with_values,
)
from kutta.errors import InputError

FORMS = 2  # plural forms where the header does not say how many there are

_VOID = re.compile(r"<(?:br|hr|img|wbr)\b|.*/>", re.IGNORECASE | re.DOTALL)
_LINE = re.compile(
    r'(?:(?:msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s*)?"(?:[^"\\]|\\.)*"\s*', re.DOTALL
)


def translate_file(source: Path, target: Path, job: Job) -> str:
    """Fill the untranslated messages of a catalogue, and mark them fuzzy for a person to check.

    A message whose translation has other placeholders stays untranslated.
    """
    catalogue = _read(source)
    _check_language(source, catalogue, job)
    entries: list[Any] = [entry for entry in catalogue.untranslated_entries() if entry.msgid]
    texts = [text for entry in entries for text in (entry.msgid, entry.msgid_plural) if text]
    translated = _translate(texts, job)
    forms, filled = _forms(catalogue), 0
    for entry in entries:
        if _fill(entry, translated, forms):
            entry.flags.append("fuzzy")
            filled += 1
    catalogue.metadata.setdefault("Content-Type", "text/plain; charset=UTF-8")
    catalogue.metadata["Language"] = catalogue.metadata.get("Language") or job.target
    catalogue.save(str(target), newline="\n")
    lost = len(entries) - filled
    left = f"; {lost:,} lost a placeholder and stay untranslated" if lost else ""
    return f"{filled:,} of {len(entries):,} untranslated messages filled, marked fuzzy{left}"


def _read(source: Path) -> Any:
    """The catalogue in a file. The file is damaged if polib raises anything."""
    try:
        encoding = polib.detect_encoding(str(source))
        _check_lines(source.read_text(encoding=encoding))
        return polib.pofile(str(source), encoding=encoding)
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).replace(str(source), "").split()) or type(error).__name__
        raise InputError(
            f"{source} is not a valid PO file ({reason}); check it with msgfmt -c."
        ) from error


def _check_lines(text: str) -> None:
    """Raise ValueError at a line that is no text in quotes; polib would lose the message."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = line.strip()
        if line and not line.startswith("#") and not _LINE.fullmatch(line):
            raise ValueError(f"line {number} has no complete text in quotes")


def _check_language(source: Path, catalogue: Any, job: Job) -> None:
    named = str(catalogue.metadata.get("Language", ""))
    base, expected = (re.split("[-_@]", code.lower())[0] for code in (named, job.target))
    if base and expected and base != expected:
        raise InputError(
            f"{source} is for the language {named!r} (in its header), but the model translates "
            f"into {job.target!r}; correct the header or choose another model."
        )


def _translate(texts: Sequence[str], job: Job) -> dict[str, str]:
    """The translation of each text, with its line breaks and outer spaces."""
    cut = {text: list(_pieces(text)) for text in texts}
    paragraphs = [[Part(piece, role) for piece, role in pieces if role] for pieces in cut.values()]

    def search(sentences: list[str]) -> list[list[Scored]]:
        return [[(translation, 0.0)] for translation in job.translate(sentences)]

    def translate(sentences: list[str]) -> list[str]:
        return [best[0][0] for best in search_with_values(sentences, search)]

    new = translate_paragraphs(paragraphs, translate, job.source, job.fits)
    result: dict[str, str] = {}
    for (text, pieces), parts in zip(cut.items(), map(iter, new), strict=True):
        result[text] = "".join(next(parts) if role else piece for piece, role in pieces)
    return result


def _pieces(text: str) -> Iterator[tuple[str, Role | None]]:
    """A message cut at its placeholders; a tag around text has no role, and the text is marked."""
    start = depth = 0
    for match in PLACEHOLDER.finditer(text):
        yield text[start : match.start()], "marked" if depth else "plain"
        start, found = match.end(), match[0]
        if not found.startswith("<") or _VOID.match(found):
            yield found, "fixed"
            continue
        depth = max(0, depth + (-1 if found.startswith("</") else 1))
        yield found, None
    yield text[start:], "marked" if depth else "plain"


def _forms(catalogue: Any) -> int:
    """The number of plural forms that the header states."""
    found = re.search(r"nplurals\s*=\s*(\d{1,2})", str(catalogue.metadata.get("Plural-Forms", "")))
    return int(found[1]) if found else FORMS


def _fill(entry: Any, translated: dict[str, str], forms: int) -> bool:
    """Fill the empty strings of an entry, unless a placeholder was lost."""
    if not entry.msgid_plural:
        text = translated[entry.msgid]
        if not keeps_placeholders(entry.msgid, text):
            return False
        entry.msgstr = text
        return True
    new: dict[int, str] = {}
    for form in range(max(forms, 1)):
        before = entry.msgstr_plural.get(form, "")
        # The first form is the singular, unless the language has only one.
        source = entry.msgid if form == 0 and forms > 1 else entry.msgid_plural
        new[form] = before or translated[source]
        if not before and not keeps_placeholders(source, new[form]):
            return False
    entry.msgstr_plural = new
    return True
