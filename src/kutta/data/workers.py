"""Tasks spread over processes: results in the order of the tasks, few of them under way."""

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from threading import Thread
from types import ModuleType
from typing import Any, TypeVar

from kutta.errors import InputError

Task = TypeVar("Task")
Result = TypeVar("Result")

FEW = 16  # tasks done before a process is started: a small corpus ends without any


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def in_order(
    make: Callable[[], Callable[[Task], Result]], tasks: Iterable[Task], processes: int
) -> Iterator[Result]:
    """`make()(task)` of every task, in order: the same whatever the number of processes.

    Every process makes the function for itself, so that it may remember what it has seen. Few
    tasks wait, so that memory stays flat. An InputError comes out where it would have come out
    of one process.
    """
    failures: list[InputError] = []

    def readable() -> Iterator[Task]:
        try:
            yield from tasks
        except InputError as error:  # told after the results of the tasks before it
            failures.append(error)

    stream = readable()
    yield from map(make(), islice(stream, FEW if processes > 1 else None))
    for first in stream:  # once at most: the executor takes the others
        yield from _in_processes(make, chain([first], stream), processes)
    if failures:
        raise failures[0]


def _in_processes(
    make: Callable[[], Callable[[Task], Result]], tasks: Iterable[Task], processes: int
) -> Iterator[Result]:
    try:
        executor = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (make,))
    except OSError as error:
        raise _not_started(error) from error
    waiting: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            if len(waiting) > processes:  # one more than can be worked on: no process is idle
                yield waiting.popleft().result()
            with _apart():
                waiting.append(executor.submit(_work, task))
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise InputError(
            "A worker process that prepares text ended before its work was done, perhaps for lack "
            "of memory; free some memory and run the same command again."
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def _not_started(error: OSError) -> InputError:
    return InputError(
        f"Cannot start a process to prepare text: {error.strerror or error}; free some memory or "
        "raise the limit of processes, and run the same command again."
    )


@contextmanager
def _apart() -> Generator[None]:
    """Processes started here are workers and nothing else.

    They do not import the script of the parent (which would need `if __name__ == "__main__"`, and
    may load torch), nor modules from the current folder, and they leave Ctrl-C to the parent.
    """
    main, safe_path = sys.modules["__main__"], os.environ.get("PYTHONSAFEPATH")
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    except OSError as error:
        raise _not_started(error) from error
    finally:
        if safe_path is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = safe_path
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


_function: Callable[[Any], Any]  # of a worker process


def _begin(make: Callable[[], Callable[[Any], Any]]) -> None:
    global _function
    _function = make()
    Thread(target=_end_with_parent, daemon=True).start()


def _work(task: Any) -> Any:
    return _function(task)


def _end_with_parent() -> None:
    """A parent that is killed cannot tell its processes to end."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
