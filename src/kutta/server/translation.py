"""Answers to translation requests: texts to sentences, sentences to models, and back."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request

from kutta.server.batching import Results, Scored, all_of
from kutta.server.fields import Fields, choice_field, count_field, gone, text_field, texts_field
from kutta.server.languages import Detected, Detector, match
from kutta.server.limits import Limits, RequestError, too_slow
from kutta.server.models import Models, Route, translate
from kutta.server.texts import FORMATS, Known, Lacking, Text

AUTO = "auto"
_SHORT = 20  # characters that say too little about their language
T = TypeVar("T")


@dataclass(frozen=True)
class Order:
    """A valid translation request."""

    texts: list[Text]
    target: str
    listed: bool  # whether q was a list, and so the answer has lists
    detected: bool  # whether the source was "auto"
    alternatives: int

    def check_room(self) -> None:
        """Refuse (429) a request whose first sentences would find a full queue."""
        for text in self.texts:
            if text.route:
                text.route[0].batcher.check_room(len(text.text))

    def notes(self) -> dict[str, Any]:
        """What the access log says about it."""
        languages = dict.fromkeys(text.language.language for text in self.texts)
        return {
            "pair": ",".join(f"{code}-{self.target}" for code in languages),
            "texts": len(self.texts),
            "characters": sum(len(text.text) for text in self.texts),
        }


def read_order(fields: Fields, models: Models, detector: Detector, limits: Limits) -> Order:
    """Check the fields of a translation request."""
    texts, listed = texts_field(fields, limits)
    asked = text_field(fields, "source")
    target = known_language(text_field(fields, "target"), models)
    form = choice_field(fields, "format", FORMATS)
    alternatives = count_field(fields, "alternatives", limits.alternatives)
    if asked.strip().lower() == AUTO:
        languages = detect_each(texts, detector, models, target)
    else:
        languages = [Detected(known_language(asked, models), 100.0)] * len(texts)
    ordered = [
        Text(text, form, language, route_to(models, language.language, target))
        for language, text in zip(languages, texts, strict=True)
    ]
    return Order(ordered, target, listed, asked.strip().lower() == AUTO, alternatives)


def detect_each(
    texts: Sequence[str], detector: Detector, models: Models, target: str
) -> list[Detected]:
    """The language of each text, of those that can be translated to the target.

    Short texts have the language of all together.
    """

    def likeliest(text: str) -> Detected:
        ranked = detector.detect(text)
        usable = [one for one in ranked if models.route(one.language, target) is not None]
        return (usable or ranked)[0]

    together = likeliest("\n".join(texts))
    return [likeliest(text) if len(text) > _SHORT else together for text in texts]


def known_language(asked: str, models: Models) -> str:
    """The code of a language that a model has."""
    code = match(asked, models.codes)
    if code is None:
        shown = asked if len(asked) <= 20 else f"{asked[:20]}..."
        raise RequestError(400, f"{shown} is not supported; choose {', '.join(models.codes)}.")
    return code


def route_to(models: Models, source: str, target: str) -> Route:
    route = models.route(source, target)
    if route is None:
        raise RequestError(400, f"There is no model from {source} to {target}; see /languages.")
    return route


async def answer(order: Order) -> tuple[dict[str, Any], int]:
    """The answer to a request in the format of LibreTranslate, and how many sentences it took."""
    n_best = order.alternatives + 1
    known: dict[Route, dict[str, list[Scored]]] = {text.route: {} for text in order.texts}
    while lacking := _lacking(order, known, n_best):
        async with asyncio.TaskGroup() as group:
            for route, sentences in lacking.items():
                group.create_task(_add(known[route], route, sentences, n_best))
    written = [_written(text, known[text.route], n_best) for text in order.texts]
    result: dict[str, Any] = {"translatedText": _shaped([one[0] for one in written], order)}
    if order.detected:
        languages = [text.language._asdict() for text in order.texts]
        result["detectedLanguage"] = _shaped(languages, order)
    if order.alternatives:
        result["alternatives"] = _shaped([one[1:] for one in written], order)
    return result, sum(map(len, known.values()))


def _lacking(order: Order, known: Mapping[Route, Known], n_best: int) -> dict[Route, list[str]]:
    """What must be translated before the texts can be written, each sentence once."""
    found: dict[Route, dict[str, None]] = {}
    for text in order.texts:
        try:
            _written(text, known[text.route], n_best)
        except Lacking as error:
            found.setdefault(text.route, {}).update(dict.fromkeys(error.sentences))
    return {route: list(sentences) for route, sentences in found.items()}


async def _add(
    known: dict[str, list[Scored]], route: Route, sentences: list[str], n_best: int
) -> None:
    """Translate sentences as one job."""
    results = await all_of(translate(route, sentences, n_best), len(sentences))
    known.update(zip(sentences, results, strict=True))


def _written(text: Text, known: Known, n_best: int) -> list[str]:
    """The translation of a text, then its alternatives: the k-th has all k-th hypotheses.

    Those that are the same come once.
    """
    return list(dict.fromkeys(text.write(known, rank) for rank in range(n_best)))


def _shaped(values: list[Any], order: Order) -> Any:
    return values if order.listed else values[0]


async def sentences_of(order: Order) -> AsyncGenerator[Results]:
    """The sentences of the only text of a request, in their order, as soon as they are ready."""
    (text,) = order.texts
    found: dict[int, list[Scored]] = {}
    sent = 0
    async with aclosing(
        translate(text.route, text.split.sentences, order.alternatives + 1)
    ) as batches:
        async for batch in batches:
            found.update(batch)
            ready: Results = []
            while sent in found:
                ready.append((sent, found.pop(sent)))
                sent += 1
            if ready:
                yield ready


async def within(request: Request, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; it is cancelled if its time is used up or the client has gone."""
    task = asyncio.ensure_future(work)
    left = asyncio.ensure_future(disconnected(request))
    try:
        done, _ = await asyncio.wait({task, left}, timeout=seconds, return_when="FIRST_COMPLETED")
        if task in done:
            return task.result()
        raise gone() if left in done else too_slow(seconds)
    except BaseExceptionGroup as group:  # of the tasks that translate; one error is the answer
        raise group.exceptions[0] from None
    finally:
        task.cancel()
        left.cancel()


async def disconnected(request: Request) -> None:
    """Returns when the client has gone. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
