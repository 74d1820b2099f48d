"""How the command line ends: whatever fails, it is one sentence and an exit code."""

import errno
import io
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from kutta import __version__
from kutta.errors import InputError, not_installed

WRONG_INPUT, UNEXPECTED, INTERRUPTED, CLOSED_PIPE = 2, 1, 130, 141
DEBUG = "--debug"


def run(command: Callable[[], object], sentence_of: Callable[[InputError], str]) -> NoReturn:
    """Run the command line and exit; `sentence_of` says more about wrong input than its message."""
    debug = _takes_debug()
    _open_streams()
    code: Any = 0
    try:
        try:
            command()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
    except BaseException as error:
        if debug:
            traceback.print_exception(error)
        code = _report(error, sentence_of, debug)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or WRONG_INPUT
            _discard(stream)
    sys.exit(code)


def say(sentence: str, rank: int = 0) -> None:
    """Print a sentence on standard error, if that is possible.

    Before the ranks of torchrun join, all have the same error: local rank 0 prints it. A later one
    is printed by the rank that reports it.
    """
    if os.environ.get("LOCAL_RANK", "0") == "0" or rank:
        with suppress(OSError, ValueError):
            print(f"kutta{f' (rank {rank})' if rank else ''}: {sentence}", file=sys.stderr)


def _report(error: BaseException, sentence_of: Callable[[InputError], str], debug: bool) -> int:
    """Say what has failed; return the exit code."""
    if isinstance(error, ModuleNotFoundError):
        error = not_installed(error)
    if isinstance(error, InputError):
        say(sentence_of(error), error.rank)
        return WRONG_INPUT
    if isinstance(error, BrokenPipeError):  # the reader has exited (e.g. `| head`)
        return CLOSED_PIPE
    if isinstance(error, KeyboardInterrupt):  # elsewhere than in a command, which says more
        say("interrupted")
        return INTERRUPTED
    if isinstance(error, OSError):
        what = "standard output" if error.filename is None else os.fsdecode(error.filename)
        say(f"Cannot use {what}: {error.strerror or error}; check it, or give another.")
        return WRONG_INPUT
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        say("There is not enough memory; give less at once, or a smaller model.")
        return WRONG_INPUT
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    log = None if debug else _log(error)
    attached = f" with the file {log} ({DEBUG} shows the same)" if log else ""
    say(f"Kutta has failed unexpectedly ({reason}); please report this{attached}.")
    return UNEXPECTED


def _log(error: BaseException) -> Path | None:
    """Write what a report needs to a temporary file."""
    facts = [
        f"kutta {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {sys.argv}",
        "".join(traceback.format_exception(error)),
    ]
    with suppress(OSError):
        handle, name = tempfile.mkstemp(prefix="kutta-", suffix=".log")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join(facts))
        return Path(name)
    return None


def _takes_debug() -> bool:
    """Whether --debug is among the arguments, at any place; it is removed from them."""
    ours = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    if DEBUG not in ours[1:]:
        return False
    sys.argv.remove(DEBUG)
    return True


class _Closed(io.RawIOBase):
    """A standard stream that was closed before Kutta started: using it is an error."""

    def __init__(self, name: str) -> None:
        self.name, self.given_up = name, False

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if self.given_up:
            return len(data)
        raise OSError(errno.EBADF, "it is closed", self.name)

    def readinto(self, buffer: Any, /) -> int:
        raise OSError(errno.EBADF, "it is closed", self.name)


def _open_streams() -> None:
    """Make standard streams that a command may use, whatever the shell has done to them."""
    # Otherwise the next file that is opened would become standard input, output or error.
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    streams: Any = sys
    if streams.stdin is None:
        streams.stdin = io.TextIOWrapper(io.BufferedReader(_Closed("standard input")))
    if streams.stdout is None:
        raw = _Closed("standard output")
        streams.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")
    if streams.stderr is None:
        streams.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # no character is an error
            stream.reconfigure(errors="backslashreplace")


def _discard(stream: Any) -> None:
    """Forget what could not be written, so that it is not tried again at exit."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    if isinstance(raw, _Closed):
        raw.given_up = True
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
