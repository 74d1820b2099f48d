"""Work spread over processes: results in the order of the pieces, few pieces under way."""

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from itertools import islice
from typing import IO, Any, Generic, Self, TypeVar, cast

from kutta.errors import InputError

Piece = TypeVar("Piece")
Result = TypeVar("Result")

FEW = 16  # pieces done before a process is started: a small corpus ends without any

# Not multiprocessing: its children import the script of their parent anew, and torch with it.
# -P: no folder is put before the path that the worker gets from its parent.
# Pickles go through the pipes of a process and its own child only; none comes from a file.
_COMMAND = (sys.executable, "-P", "-c", "from kutta.data.workers import serve; serve()")
_GONE = (EOFError, pickle.UnpicklingError, OSError)  # how the end of the other side shows


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def in_order(
    make: Callable[[], Callable[[Piece], Result]], pieces: Iterable[Piece], processes: int
) -> Iterator[Result]:
    """`make()(piece)` of every piece, in order: the same whatever the number of processes.

    Every worker makes the function for itself, so that it may remember what it has seen, and has
    one piece at a time, so that memory stays flat. An InputError comes out where it would have
    come out of one process.
    """
    failures: list[InputError] = []

    def readable() -> Iterator[Piece]:
        try:
            yield from pieces
        except InputError as error:  # told after the results of the pieces before it
            failures.append(error)

    stream = readable()
    yield from map(make(), islice(stream, FEW if processes > 1 else None))
    with ExitStack() as started:
        busy: deque[_Worker[Piece, Result]] = deque()
        for piece in stream:
            if len(busy) < processes:
                worker = started.enter_context(_Worker(make))
                worker.ask(piece)
                busy.append(worker)
            else:
                worker = busy.popleft()
                result = worker.answer()
                worker.ask(piece)
                busy.append(worker)
                yield result
        for worker in busy:
            yield worker.answer()
    if failures:
        raise failures[0]


def serve() -> None:
    """The life of a worker: make the function, then answer until nobody asks any more."""
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        function = pickle.load(questions)()
        while True:
            piece = pickle.load(questions)
            try:
                result = function(piece)
            except InputError as error:
                result = error
            _send(result, answers)
    except _GONE:
        os._exit(0)  # at once: nothing is left to say, and nobody to say it to


class _Worker(Generic[Piece, Result]):
    """A process that answers one piece after the other. It reads all of one before it answers, so
    that neither side waits for the other in vain."""

    def __init__(self, make: Callable[[], Callable[[Piece], Result]]) -> None:
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        try:
            self._process = subprocess.Popen(
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": path},
                process_group=0,  # Ctrl-C is for the parent; a worker ends when its questions do
            )
        except OSError as error:
            raise InputError(
                f"Cannot start a process to prepare text: {error.strerror or error}; free some "
                "memory or raise the limit of processes, and run the same command again."
            ) from error
        self._questions = cast(IO[bytes], self._process.stdin)
        self._answers = cast(IO[bytes], self._process.stdout)
        self.ask(make)

    def ask(self, piece: Any) -> None:
        try:
            _send(piece, self._questions)
        except OSError as error:
            raise self._lost() from error

    def answer(self) -> Result:
        try:
            result = pickle.load(self._answers)
        except _GONE as error:
            raise self._lost() from error
        if isinstance(result, InputError):
            raise result
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        with suppress(OSError), self._process:  # closes the pipes and waits
            pass

    def _lost(self) -> InputError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()  # it may live, having said what was no answer
        code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return InputError(
            f"A worker process that prepares text has ended before its work ({how}), perhaps for "
            "lack of memory; free some memory and run the same command again."
        )


def _send(value: Any, pipe: IO[bytes]) -> None:
    pickle.dump(value, pipe, protocol=5)
    pipe.flush()
