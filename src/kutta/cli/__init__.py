"""The command line: one thin function per command.

Wrong input gives one sentence on standard error and exit code 2, never a traceback.
"""

import warnings
from pathlib import Path

from kutta.cli import failure
from kutta.cli.app import app
from kutta.errors import InputError, show_warning

# Each module adds its commands to the app, in the order in which `kutta --help` lists them.
from kutta.cli import run  # isort: skip
from kutta.cli import translate  # isort: skip
from kutta.cli import evaluate  # isort: skip
from kutta.cli import export  # isort: skip
from kutta.cli import info  # isort: skip
from kutta.cli import models  # isort: skip
from kutta.cli import sample  # isort: skip
from kutta.cli import serve  # isort: skip
from kutta.cli import data  # isort: skip
from kutta.cli import analyze  # isort: skip
from kutta.cli import reproduce  # isort: skip

__all__ = [
    "analyze",
    "app",
    "data",
    "evaluate",
    "export",
    "info",
    "main",
    "models",
    "reproduce",
    "run",
    "sample",
    "serve",
    "translate",
]


def main() -> None:
    """Run the command line; every failure is one sentence and an exit code."""
    warnings.showwarning = show_warning
    failure.run(app, _with_corpus)


def _with_corpus(error: InputError) -> str:
    """The message; for the missing folder of a public corpus it says how to download the text."""
    from kutta.data.corpus import MissingText

    if not isinstance(error, MissingText):
        return str(error)
    from kutta.corpora.assemble import is_made
    from kutta.corpora.recipes import RECIPES

    name, root = error.folder.name, error.folder.parent
    if name not in RECIPES or is_made(RECIPES[name], root):
        return str(error)
    place = "" if root == Path("data") else f" --dir {root}"
    return f"{str(error).removesuffix('.')}; `kutta data get {name}{place}` downloads it."
