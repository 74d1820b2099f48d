"""A translation as a stream of server-sent events: each sentence as soon as it is ready."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import Request

from kutta.server.batching import Results, Scored
from kutta.server.fields import gone
from kutta.server.front import fault_of
from kutta.server.limits import FAULT, RequestError, too_slow
from kutta.server.service import note
from kutta.server.translation import Order, disconnected, sentences_of


async def events(request: Request, order: Order, seconds: float) -> AsyncGenerator[str]:
    """The events of a stream: start, a sentence each, and done or error."""
    (text,) = order.texts
    yield _event(
        "start",
        detectedLanguage=text.language._asdict(),
        gaps=text.split.gaps,
        sentences=text.split.sentences,
    )
    note(request, sentences=len(text.split.sentences))
    best: list[str] = []
    new: deque[str] = deque()
    filled = text.split.fill(iter(new.popleft, None))  # yields as translations are added
    try:
        async with aclosing(_sentences(request, order, seconds)) as found:
            async for batch in found:
                new.extend(hypotheses[0][0] for _, hypotheses in batch)
                best.extend(new)
                yield "".join(_sentence(n, next(filled)[0], *texts) for n, texts in batch)
    except RequestError as error:
        note(request, error=error.status)
        yield _event("error", error=error.message, retryAfter=error.retry_after)
    except Exception as error:  # the answer has begun, so its status cannot say it
        note(request, error=500, fault=fault_of(error))
        yield _event("error", error=FAULT, retryAfter=None)
    else:
        yield _event("done", translatedText=text.split.join(best).text)


async def _sentences(request: Request, order: Order, seconds: float) -> AsyncGenerator[Results]:
    """The sentences of an order until the time is used up or the client has gone.

    The tasks are cancelled without waiting for them, so this may itself be cancelled at any point.
    """
    ready: asyncio.Queue[Results | Exception | None] = asyncio.Queue()

    async def translate() -> None:
        try:
            async with aclosing(sentences_of(order)) as sentences:
                async for batch in sentences:
                    ready.put_nowait(batch)
            ready.put_nowait(None)
        except Exception as error:
            ready.put_nowait(error)

    async def watch() -> None:
        await disconnected(request)
        ready.put_nowait(gone())

    tasks = [asyncio.create_task(translate()), asyncio.create_task(watch())]
    timer = asyncio.get_running_loop().call_later(seconds, ready.put_nowait, too_slow(seconds))
    try:
        while (item := await ready.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        timer.cancel()
        for task in tasks:
            task.cancel()


def _sentence(number: int, gap: str, best: Scored, *others: Scored) -> str:
    """An event; the gap before the sentence differs from that of the source between scripts."""
    alternatives = [text for text, _ in others]
    return _event(
        "sentence", index=number, gap=gap, translatedText=best[0], alternatives=alternatives
    )


def _event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
