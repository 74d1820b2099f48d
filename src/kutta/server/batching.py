"""Batches across clients: the threads of a model translate what waits, together.

A request puts its sentences into the queue of a model as one `Job`. A thread takes sentences from
all jobs in turn, so a long text does not hold up a short one, and a text is translated from its
beginning. A thread that was idle waits `WINDOW` seconds for others to join, and leaves their share
to other idle threads; a busy one finds sentences waiting. A cancelled job leaves the queue at once.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress

from kutta.server.limits import Limits, overloaded

WINDOW = 0.002  # seconds
BATCH_SENTENCES = 32
BATCH_CHARACTERS = 4_000  # bounds the time of a batch, and so the wait of those that come next

Scored = tuple[str, float]
Translate = Callable[[list[str], int], list[list[Scored]]]  # (sentences, n_best) -> hypotheses
Results = list[tuple[int, list[Scored]]]  # the number of a sentence, and its hypotheses
Observe = Callable[[int, float], None]  # called with the sentences and the seconds of a batch


class Job:
    """The sentences of one request, and where their results go."""

    def __init__(self, sentences: Sequence[str], n_best: int) -> None:
        self.n_best = n_best
        self.left = deque(enumerate(sentences))
        self.size = sum(map(len, sentences))  # characters not yet taken
        self.loop = asyncio.get_running_loop()
        self.results: asyncio.Queue[Results | Exception] = asyncio.Queue()

    def take(self) -> tuple[int, str]:
        number, sentence = self.left.popleft()
        self.size -= len(sentence)
        return number, sentence

    def deliver(self, results: Results | Exception) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self.results.put_nowait, results)


class Batcher:
    """The queue of a model and the threads that empty it. Close it after use."""

    def __init__(
        self,
        translate: Translate,
        limits: Limits,
        name: str,
        observe: Observe | None = None,
        threads: int = 1,
    ) -> None:
        self._translate, self._limits, self._observe = translate, limits, observe
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._idle = 0  # threads that have no batch
        self._rate = 500.0  # characters a second of one thread, measured by full batches
        self._threads = [
            threading.Thread(target=self._work, name=f"translate {name} {number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """The characters in the queue."""
        with self._changed:
            return sum(job.size for job in self._jobs)

    async def translate(self, sentences: Sequence[str], n_best: int = 1) -> AsyncGenerator[Results]:
        """The hypotheses of the sentences, batch by batch, as they are ready.

        Raises RequestError (429) at once if the queue is full. Leaving the iterator drops what is
        not translated yet.
        """
        if not sentences:
            return
        job = Job(sentences, n_best)
        self._put(job)
        missing = len(sentences)
        try:
            while missing:
                results = await job.results.get()
                if isinstance(results, Exception):
                    raise results
                missing -= len(results)
                yield results
        finally:
            self._drop(job)

    def close(self) -> None:
        """Finish what is in the queue, then end the threads."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def check_room(self, characters: int) -> None:
        """Refuse (429) what the queue has no room for, or what could not begin in time.

        An empty queue takes anything.
        """
        waiting = self.waiting
        seconds = waiting / (self._rate * len(self._threads))
        full = waiting + characters > self._limits.waiting
        if waiting and (full or seconds > self._limits.seconds):
            raise overloaded(seconds)

    def _put(self, job: Job) -> None:
        with self._changed:
            self.check_room(job.size)
            self._jobs.append(job)
            self._changed.notify_all()

    def _drop(self, job: Job) -> None:
        with self._changed, suppress(ValueError):
            self._jobs.remove(job)

    def _work(self) -> None:
        while batch := self._next():
            jobs, numbers, sentences = zip(*batch, strict=True)
            started = time.perf_counter()
            found: list[list[Scored]] | Exception
            try:
                found = self._translate(list(sentences), jobs[0].n_best)
            except Exception as error:  # an answer to those who wait; the thread goes on
                found = error
            seconds = time.perf_counter() - started
            self._measure(sentences, seconds)
            if self._observe:
                self._observe(len(sentences), seconds)
            for job in dict.fromkeys(jobs):
                if isinstance(found, Exception):
                    job.deliver(found)
                    self._drop(job)
                    continue
                mine = zip(jobs, numbers, found, strict=True)
                job.deliver([(number, best) for one, number, best in mine if one is job])

    def _measure(self, sentences: Sequence[str], seconds: float) -> None:
        """Follow the rate. A small batch is slower than full ones, so it can only raise it."""
        characters = sum(map(len, sentences))
        rate = characters / max(seconds, 1e-6)
        full = len(sentences) == BATCH_SENTENCES or characters > BATCH_CHARACTERS
        with self._changed:
            if full or rate > self._rate:
                self._rate += 0.2 * (rate - self._rate)

    def _next(self) -> list[tuple[Job, int, str]]:
        """The next batch; waits for it. Empty if the queue is closed and nothing is left."""
        with self._changed:
            self._idle += 1
            while not self._jobs and not self._closing:
                self._changed.wait_for(lambda: self._jobs or self._closing)
                self._changed.wait_for(lambda: self._closing, WINDOW)
            batch = self._take() if self._jobs else []
            self._idle -= 1
            return batch

    def _take(self) -> list[tuple[Job, int, str]]:
        """Sentences of all jobs in turn, those of the longest wait first.

        A batch has one n_best, because the search and so the translation depends on it.
        """
        n_best = self._jobs[0].n_best
        batch: list[tuple[Job, int, str]] = []
        characters, most = 0, self._share(n_best)
        others: deque[Job] = deque()
        while self._jobs:
            job = self._jobs.popleft()
            if job.n_best != n_best:
                others.append(job)
                continue
            if len(batch) == most or characters > BATCH_CHARACTERS:
                self._jobs.appendleft(job)
                break
            batch.append((job, *job.take()))
            characters += len(batch[-1][2])
            if job.left:
                self._jobs.append(job)
        self._jobs.extendleft(reversed(others))
        return batch

    def _share(self, n_best: int) -> int:
        """How many sentences a thread takes, so that the other idle threads get as many."""
        waiting = sum(len(job.left) for job in self._jobs if job.n_best == n_best)
        return min(BATCH_SENTENCES, -(-waiting // self._idle))


async def all_of(results: AsyncGenerator[Results], count: int) -> list[list[Scored]]:
    """Every hypothesis list in the order of the sentences."""
    found: dict[int, list[Scored]] = {}
    async with aclosing(results) as batches:
        async for batch in batches:
            found.update(batch)
    return [found[number] for number in range(count)]
