"""Batches across clients: who is translated with whom, in which order, and what is dropped."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from kutta.server.batching import BATCH_SENTENCES, WINDOW, Batcher, Scored, all_of
from kutta.server.limits import Limits, RequestError

Call = tuple[list[str], int]


class Recorder:
    """A translator that notes its calls and waits at a gate."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()

    def __call__(self, sentences: list[str], n_best: int) -> list[list[Scored]]:
        self.calls.append((sentences, n_best))
        self.begun.set()
        self.gate.wait(10)
        if "fail" in sentences:
            raise ValueError("it failed")
        return [[(sentence.upper(), 0.0)] * n_best for sentence in sentences]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def batcher(recorder: Recorder) -> Iterator[Batcher]:
    one = Batcher(recorder, Limits(waiting=1000), "test")
    yield one
    recorder.gate.set()
    one.close()


async def ask(batcher: Batcher, sentences: list[str], n_best: int = 1) -> list[str]:
    found = await all_of(batcher.translate(sentences, n_best), len(sentences))
    return [best[0][0] for best in found]


async def occupied(batcher: Batcher, recorder: Recorder) -> asyncio.Task[list[str]]:
    """Keep the thread busy until the gate opens, so that what follows waits together."""
    recorder.gate.clear()
    task = asyncio.create_task(ask(batcher, ["first"]))
    await asyncio.to_thread(recorder.begun.wait, 5)
    return task


def test_each_request_gets_its_own_results_in_order(batcher: Batcher) -> None:
    async def go() -> None:
        lists = [[f"{who}{n}" for n in range(who)] for who in range(1, 20)]
        found = await asyncio.gather(*(ask(batcher, one) for one in lists))
        assert found == [[text.upper() for text in one] for one in lists]

    asyncio.run(go())


def test_requests_that_wait_are_translated_together(batcher: Batcher, recorder: Recorder) -> None:
    async def go() -> None:
        first = await occupied(batcher, recorder)
        others = [asyncio.create_task(ask(batcher, [f"other {n}"])) for n in range(8)]
        await asyncio.sleep(0.02)
        recorder.gate.set()
        await asyncio.gather(first, *others)

    asyncio.run(go())
    assert recorder.calls[1:] == [([f"other {n}" for n in range(8)], 1)]


def test_a_short_request_does_not_wait_for_a_long_one(batcher: Batcher, recorder: Recorder) -> None:
    async def go() -> None:
        first = await occupied(batcher, recorder)
        long = asyncio.create_task(ask(batcher, [f"long {n}" for n in range(90)]))
        await asyncio.sleep(0.02)
        short = asyncio.create_task(ask(batcher, ["short"]))
        await asyncio.sleep(0.02)
        recorder.gate.set()
        await asyncio.gather(first, long, short)

    asyncio.run(go())
    assert "short" in recorder.calls[1][0], "in the very next batch"
    assert all(len(sentences) <= BATCH_SENTENCES for sentences, _ in recorder.calls)
    order = [text for sentences, _ in recorder.calls for text in sentences if "long" in text]
    assert order == [f"long {n}" for n in range(90)], "a text is translated from its beginning"


def test_a_batch_has_one_number_of_hypotheses(batcher: Batcher, recorder: Recorder) -> None:
    """Else the alternatives that one client wants would change the translation of another."""

    async def go() -> None:
        first = await occupied(batcher, recorder)
        wanted = [1, 3, 1, 3]
        tasks = [
            asyncio.create_task(ask(batcher, [f"s{n}"], best)) for n, best in enumerate(wanted)
        ]
        await asyncio.sleep(0.02)
        recorder.gate.set()
        await asyncio.gather(first, *tasks)

    asyncio.run(go())
    assert sorted(recorder.calls[1:]) == [(["s0", "s2"], 1), (["s1", "s3"], 3)]


def test_a_cancelled_request_leaves_the_queue(batcher: Batcher, recorder: Recorder) -> None:
    async def go() -> None:
        first = await occupied(batcher, recorder)
        unwanted = asyncio.create_task(ask(batcher, ["unwanted"] * 50))
        await asyncio.sleep(0.02)
        assert batcher.waiting == 400
        unwanted.cancel()
        await asyncio.sleep(0.02)
        assert batcher.waiting == 0
        recorder.gate.set()
        await first
        assert await ask(batcher, ["later"]) == ["LATER"]

    asyncio.run(go())
    assert [sentences for sentences, _ in recorder.calls] == [["first"], ["later"]]


def test_a_full_queue_refuses_at_once_and_says_when_to_come_back(
    batcher: Batcher, recorder: Recorder
) -> None:
    async def go() -> None:
        first = await occupied(batcher, recorder)
        waiting = asyncio.create_task(ask(batcher, ["x" * 990]))
        await asyncio.sleep(0.02)
        started = time.perf_counter()
        with pytest.raises(RequestError) as refused:
            await ask(batcher, ["one too many"])
        assert time.perf_counter() - started < 0.1
        assert refused.value.status == 429
        assert (refused.value.retry_after or 0) >= 1
        recorder.gate.set()
        await asyncio.gather(first, waiting)

    asyncio.run(go())


def test_what_could_not_begin_in_time_is_refused_at_once(recorder: Recorder) -> None:
    batcher = Batcher(recorder, Limits(waiting=10_000, seconds=1), "test")

    async def go() -> None:
        first = await occupied(batcher, recorder)
        waiting = asyncio.create_task(ask(batcher, ["x" * 50] * 60))  # 6 s at the rate of the start
        await asyncio.sleep(0.02)
        with pytest.raises(RequestError) as refused:
            await ask(batcher, ["too late"])
        assert (refused.value.status, refused.value.retry_after) == (429, 6)
        recorder.gate.set()
        await asyncio.gather(first, waiting)
        await ask(batcher, ["in time"])

    asyncio.run(go())
    batcher.close()


def test_an_empty_queue_takes_a_request_of_any_size(batcher: Batcher) -> None:
    assert asyncio.run(ask(batcher, ["x" * 5000])) == ["X" * 5000]


def test_an_error_reaches_those_who_wait_and_the_thread_goes_on(batcher: Batcher) -> None:
    with pytest.raises(ValueError, match="it failed"):
        asyncio.run(ask(batcher, ["fail"]))
    assert asyncio.run(ask(batcher, ["fine"])) == ["FINE"]


def test_a_single_request_waits_a_few_milliseconds_at_most(batcher: Batcher) -> None:
    async def go() -> float:
        times: list[float] = []
        for _ in range(20):
            started = time.perf_counter()
            await ask(batcher, ["quick"])
            times.append(time.perf_counter() - started)
        return min(times)

    assert WINDOW <= 0.005
    assert asyncio.run(go()) < 0.05, "the machine may be busy; the best of 20"


def test_idle_threads_share_what_waits(recorder: Recorder) -> None:
    """A long text uses every core; a sentence alone is one batch."""
    recorder.gate.clear()
    batcher = Batcher(recorder, Limits(waiting=1000), "test", threads=2)

    async def go() -> list[str]:
        task = asyncio.create_task(ask(batcher, [f"s{n}" for n in range(7)]))
        while len(recorder.calls) < 2:
            await asyncio.sleep(0.001)
        recorder.gate.set()
        return await asyncio.wait_for(task, 5)

    assert asyncio.run(asyncio.wait_for(go(), 10)) == [f"S{n}" for n in range(7)]
    assert sorted(recorder.calls) == [(["s0", "s1", "s2", "s3"], 1), (["s4", "s5", "s6"], 1)]
    assert asyncio.run(ask(batcher, ["alone"])) == ["ALONE"]
    assert recorder.calls[2:] == [(["alone"], 1)]
    batcher.close()


def test_a_thread_goes_on_while_another_is_busy(recorder: Recorder) -> None:
    batcher = Batcher(recorder, Limits(waiting=1000), "test", threads=2)

    async def go() -> None:
        first = await occupied(batcher, recorder)
        second = asyncio.create_task(ask(batcher, ["second"]))
        while len(recorder.calls) < 2:
            await asyncio.sleep(0.001)
        assert batcher.waiting == 0
        third = asyncio.create_task(ask(batcher, ["third"]))
        await asyncio.sleep(0.02)
        assert batcher.waiting == len("third")
        recorder.gate.set()
        await asyncio.gather(first, second, third)

    asyncio.run(asyncio.wait_for(go(), 10))
    batcher.close()


def test_closing_finishes_what_waits(recorder: Recorder) -> None:
    batcher = Batcher(recorder, Limits(waiting=1000), "test")

    async def go() -> list[str]:
        first = await occupied(batcher, recorder)
        second = asyncio.create_task(ask(batcher, ["second"]))
        await asyncio.sleep(0.02)
        recorder.gate.set()
        await asyncio.to_thread(batcher.close)
        return await first + await second

    assert asyncio.run(go()) == ["FIRST", "SECOND"]
