"""Several workers that search at once, over one copy of the weights.

A worker is a thread: the interpreter lock is released while a model computes, which is nearly
all of the time. Each takes the next sentences when it has room, so none waits for another.
"""

import os
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kutta.config import DecodeConfig
from kutta.translate.scorer import Scorer
from kutta.translate.search import Found, Sentence, most_at_once, search


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Arrangement:
    """How a model uses the cores: workers, and threads of each for its products.

    Workers of one thread give the most sentences a second. A sentence alone can only be translated
    sooner with more threads.
    """

    workers: int
    threads: int

    @classmethod
    def of(cls, lines: int, workers: int | None = None) -> "Arrangement":
        """The fastest one for so many lines, or one with a number of workers."""
        if workers is not None:
            return cls(workers, 1)
        return cls(1, cores()) if lines == 1 else cls(cores(), 1)


@dataclass
class _Shared:
    """The sentences that nobody has taken yet."""

    sentences: Iterator[Sentence]
    share: int  # what a worker takes at once, so that the first does not take all of a few
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __iter__(self) -> Iterator[Sentence]:
        while True:
            with self.lock:
                following = None if self.stopped else next(self.sentences, None)
            if following is None:
                return
            yield following


def search_together(
    workers: int,
    scorer: Scorer,
    sentences: Sequence[Sentence],
    decode: DecodeConfig,
    n_best: int = 1,
) -> Found:
    """The same as `search`, by several workers; an error in one of them is raised here."""
    if workers == 1:
        yield from search(scorer, sentences, decode, n_best)
        return
    share = -(-len(sentences) // workers)
    if share <= most_at_once(decode.beam):  # each begins with its share, of all lengths
        sentences = [one for first in range(workers) for one in sentences[first::workers]]
    shared = _Shared(iter(sentences), share)
    results: queue.SimpleQueue[object] = queue.SimpleQueue()

    def work() -> None:
        try:
            for found in search(scorer, iter(shared), decode, n_best, shared.share):
                results.put(found)
                if shared.stopped:
                    break
        except BaseException as error:
            results.put(error)
        finally:
            results.put(None)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        working = workers
        while working:
            found = results.get()
            if isinstance(found, BaseException):
                raise found
            if isinstance(found, tuple):
                yield found
            else:
                working -= 1
    finally:  # also where the caller wants no more
        shared.stopped = True
        for thread in threads:
            thread.join()
