"""The formats of files, by suffix: each is a module with a function `translate_file`."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from kutta.documents.sentences import Fits, Translate, is_short
from kutta.errors import InputError
from kutta.files import atomic_path


class Job(NamedTuple):
    """How a file is translated: a function for sentences, the languages, and what fits a model."""

    translate: Translate
    source: str  # language codes
    target: str
    fits: Fits = is_short


# Translates a file into another file and returns one sentence on what was done.
TranslateFile = Callable[[Path, Path, Job], str]


class Format(NamedTuple):
    """A format, its module, and the library that the module needs."""

    name: str
    module: str
    library: str = ""

    def translator(self) -> TranslateFile:
        """The function of the format; one sentence where its library is missing."""
        if self.library and find_spec(self.library) is None:
            raise InputError(
                f"Translating {self.name} needs a library that is not installed; install it with "
                "pip install 'kutta[documents]'."
            )
        return import_module(f"kutta.documents.{self.module}").translate_file


FORMATS = {
    ".docx": Format("Word documents (.docx)", "docx", "docx"),
    ".htm": Format("HTML", "html"),
    ".html": Format("HTML", "html"),
    ".po": Format("message catalogues (.po)", "po", "polib"),
    ".pot": Format("message catalogues (.po)", "po", "polib"),
    ".srt": Format("subtitles (.srt)", "srt", "srt"),
    ".tmx": Format("translation memories (.tmx)", "tmx", "lxml"),
    ".xhtml": Format("HTML", "html"),
}


def format_of(path: Path) -> Format | None:
    """The format of a file by its suffix; None is plain text."""
    return FORMATS.get(path.suffix.lower())


def translate_file(source: Path, target: Path, job: Job) -> str:
    """Translate a file of a known format; `target` is complete or unchanged.

    Returns one sentence on what was done.
    """
    chosen = format_of(source)
    if chosen is None:
        known = ", ".join(FORMATS)
        raise InputError(f"{source} is of no known format; give a file whose name ends in {known}.")
    translator = chosen.translator()
    check_readable(source)
    with atomic_path(target) as temporary:
        return translator(source, temporary, job)


def check_readable(source: Path) -> None:
    """Reject a file that cannot be read, before anything is written."""
    try:
        with open(source, "rb") as file:
            file.read(1)
    except OSError as error:
        raise InputError(
            f"Cannot read {source}: {error.strerror or error}; check that it exists and is "
            "readable."
        ) from error
