"""The command line: one thin function per command.

Wrong input gives one sentence on standard error and exit code 2, never a traceback.
"""

import os
import sys
import warnings
from pathlib import Path

from kutta.cli.app import app
from kutta.errors import InputError, not_installed, show_warning

# Each module adds its commands to the app, in the order in which `kutta --help` lists them.
from kutta.cli import run  # isort: skip
from kutta.cli import translate  # isort: skip
from kutta.cli import evaluate  # isort: skip
from kutta.cli import export  # isort: skip
from kutta.cli import info  # isort: skip
from kutta.cli import models  # isort: skip
from kutta.cli import sample  # isort: skip
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
    "translate",
]


def main() -> None:
    """Run the command line; an expected failure is one sentence and an exit code."""
    warnings.showwarning = show_warning
    try:
        app()
    except InputError as error:
        _fail(_with_corpus(error), 2, error.rank)
    except ModuleNotFoundError as error:
        _fail(str(not_installed(error)), 2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has exited (e.g. `| head`)
        sys.exit(141)
    except KeyboardInterrupt:  # elsewhere than in a command, which says more (app.py)
        _fail("interrupted", 130)


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


def _fail(sentence: str, code: int, rank: int = 0) -> None:
    # Before the ranks of torchrun join, all have the same error: local rank 0 prints it. A later
    # error is printed by the rank that reports it.
    if os.environ.get("LOCAL_RANK", "0") == "0" or rank:
        print(f"kutta{f' (rank {rank})' if rank else ''}: {sentence}", file=sys.stderr)
    sys.exit(code)
