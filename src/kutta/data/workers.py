"""A process pool with results in the order of the tasks and a bounded number in flight."""

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import get_context
from threading import Thread
from types import ModuleType
from typing import Any, TypeVar

from kutta.errors import InputError

Task = TypeVar("Task")
Result = TypeVar("Result")

FEW = 16  # tasks done here before processes are started: a small corpus needs none


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def in_order(
    make: Callable[[], Callable[[Task], Result]], tasks: Iterable[Task], processes: int
) -> Iterator[Result]:
    """`make()(task)` for every task, in order; the number of processes does not matter.

    Each process makes the function for itself, so that it may keep a cache. Few tasks are queued,
    so that memory stays bounded. An InputError is raised where a single process would raise it.
    """
    failures: list[InputError] = []

    def readable() -> Iterator[Task]:
        try:
            yield from tasks
        except InputError as error:  # raised after the results of the tasks before it
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
    with _isolated_start():
        executor = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (make, os.getpid()))
    waiting: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            if len(waiting) > processes:  # one more than there are processes: none is idle
                yield waiting.popleft().result()
            with _isolated_start():
                waiting.append(executor.submit(_work, task))
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise InputError(
            "A worker process that prepares text ended unexpectedly, perhaps for lack of memory; "
            "free some memory and run the same command again."
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def _isolated_start() -> Generator[None]:
    """Isolate processes that are started here from the script of their parent.

    They do not import it (it would need `if __name__ == "__main__"`, and may import torch) nor
    modules from the current folder, and they leave Ctrl-C to the parent.
    """
    main, safe_path = sys.modules["__main__"], os.environ.get("PYTHONSAFEPATH")
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    except OSError as error:
        raise InputError(
            f"Cannot start a process to prepare text: {error.strerror or error}; free some memory "
            "or raise the process limit, and run the same command again."
        ) from error
    finally:
        if safe_path is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = safe_path
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


_function: Callable[[Any], Any]  # of a worker process


def _begin(make: Callable[[], Callable[[Any], Any]], parent: int) -> None:
    global _function
    _function = make()
    end_with(parent)


def _work(task: Any) -> Any:
    return _function(task)


def end_with(parent: int) -> None:
    """Exit when the parent process does: one that is killed cannot stop its workers."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(2)

    Thread(target=watch, daemon=True).start()
