"""The command line: one thin function per command.

Wrong input ends in one sentence on standard error and exit code 2, never in a traceback.
"""

import os
import sys
import warnings
from typing import Any

from kutta.cli.app import app
from kutta.errors import InputError

# Each module adds its commands to the app, in the order in which `kutta --help` lists them.
from kutta.cli import run  # isort: skip
from kutta.cli import info  # isort: skip
from kutta.cli import sample  # isort: skip
from kutta.cli import data  # isort: skip
from kutta.cli import analyze  # isort: skip
from kutta.cli import reproduce  # isort: skip

__all__ = ["analyze", "app", "data", "info", "main", "reproduce", "run", "sample"]


def main() -> None:
    """Run the command line; every expected failure is one sentence and an exit code."""
    warnings.showwarning = _show_warning
    try:
        app()
    except InputError as error:
        _fail(str(error), 2, error.rank)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone (e.g. `| head`); nobody is left to be told
        sys.exit(141)
    except KeyboardInterrupt:
        _fail("interrupted", 130)


def _show_warning(message: Warning | str, *_: Any) -> None:
    print(f"kutta: {message}", file=sys.stderr)


def _fail(sentence: str, code: int, rank: int = 0) -> None:
    # Ranks that torchrun starts make the same mistake before they join each other: rank 0 of each
    # machine says it. What a rank finds out later is its own, and said once.
    if os.environ.get("LOCAL_RANK", "0") == "0" or rank:
        print(f"kutta{f' (rank {rank})' if rank else ''}: {sentence}", file=sys.stderr)
    sys.exit(code)
