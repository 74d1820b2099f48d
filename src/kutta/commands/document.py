"""`kutta translate` of a file that is not plain text."""

import shutil
import sys
import tempfile
from pathlib import Path

from kutta.commands.progress import remark
from kutta.documents.formats import Job, check_readable, format_of, translate_file
from kutta.errors import InputError

BINARY = (".docx",)


def check_document(path: Path, output: Path | None, n_best: int, as_json: bool) -> None:
    """Reject what cannot be done with a document, before a model is loaded."""
    if n_best > 1 or as_json:
        option = "--json" if as_json else "--n-best"
        raise InputError(
            f"{option} is for plain text, but {path} is a document with one place for each "
            "translation; remove the option."
        )
    if output is None and path.suffix.lower() in BINARY and sys.stdout.isatty():
        raise InputError(f"{path} is not text for a terminal; name a file with --output.")
    if output is not None and output.is_dir():
        raise InputError(f"{output} is a folder; give the name of a file for the output.")
    chosen = format_of(path)
    assert chosen is not None
    chosen.translator()
    check_readable(path)


def translate_document(path: Path, output: Path | None, job: Job) -> None:
    """Translate a document to a file, or to standard output."""
    if output is not None:
        remark(f"{output}: {translate_file(path, output, job)}.")
        return
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / path.name
        done = translate_file(path, temporary, job)
        with open(temporary, "rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.flush()
    remark(f"{path}: {done}.")
