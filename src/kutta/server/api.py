"""The routes: those of LibreTranslate, the stream, the views into models, health and metrics."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from kutta import __version__
from kutta.errors import InputError
from kutta.server import schema
from kutta.server.fields import Fields, choice_field, count_field, text_field
from kutta.server.languages import name_of
from kutta.server.limits import RequestError
from kutta.server.service import Service, note
from kutta.server.stream import events
from kutta.server.translation import (
    Order,
    answer,
    known_language,
    read_order,
    within,
)
from kutta.server.views import Compute


def routes(service: Service) -> APIRouter:
    """All routes that answer with data."""
    router = APIRouter()
    limits = service.limits

    async def order_of(request: Request) -> Order:
        fields = await service.fields(request)
        order = read_order(fields, service.models, service.detector, limits)
        note(request, **order.notes())
        return order

    @router.post("/translate", tags=["LibreTranslate"], **schema.TRANSLATE)
    async def translate(request: Request) -> JSONResponse:
        """Translate a text, or a list of texts."""
        order = await order_of(request)
        order.check_room()  # before the texts are split, which takes time
        found, sentences = await within(request, limits.seconds, answer(order))
        note(request, sentences=sentences)
        return JSONResponse(found)

    @router.post("/translate/stream", tags=["Kutta"], **schema.STREAM)
    async def stream(request: Request) -> StreamingResponse:
        """Translate a text and send each sentence as soon as it is ready (server-sent events)."""
        order = await order_of(request)
        if order.listed:
            raise RequestError(400, "A list cannot be streamed; send q as one text.")
        if order.texts[0].format == "html":
            raise RequestError(400, "HTML cannot be streamed; send it to /translate.")
        order.check_room()  # now, while the status can still say so
        return StreamingResponse(
            events(request, order, limits.seconds),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    @router.post("/detect", tags=["LibreTranslate"], **schema.DETECT)
    async def detect(request: Request) -> list[dict[str, Any]]:
        """Detect the language of a text; the likeliest first, with a confidence in percent."""
        fields = await service.fields(request)
        text = text_field(fields, "q")
        if len(text) > limits.characters:
            raise RequestError(400, f"The text is too long; send at most {limits.characters:,}.")
        return [found._asdict() for found in service.detector.detect(text)]

    @router.get("/languages", tags=["LibreTranslate"], **schema.LANGUAGES)
    async def languages() -> list[dict[str, Any]]:
        """List the languages, and for each those that it can be translated to."""
        models = service.models
        return [
            {"code": code, "name": name_of(code), "targets": models.targets(code)}
            for code in models.codes
        ]

    @router.get("/frontend/settings", tags=["LibreTranslate"])
    async def settings() -> dict[str, Any]:
        """What a page needs to know: limits, keys, and the languages to begin with."""
        first = service.models.served[0].model
        return {
            "charLimit": limits.characters,
            "frontendTimeout": 250,
            "apiKeys": service.keys.required,
            "keyRequired": service.keys.required,
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "language": {
                side: {"code": code, "name": name_of(code)}
                for side, code in (("source", first.source), ("target", first.target))
            },
        }

    @router.get("/health", tags=["Operation"])
    async def health() -> dict[str, Any]:
        """Say that the server is up, and what it serves."""
        pairs = [one.model.pair for one in service.models.served]
        return {"status": "ok", "version": __version__, "models": pairs}

    @router.get("/metrics", tags=["Operation"], response_class=Response)
    async def metrics() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(service.metrics.page(), media_type=service.metrics.content_type)

    return router


def inside_routes(service: Service) -> APIRouter:
    """The routes of the view Inside the solver."""
    router = APIRouter(prefix="/inside", tags=["Inside the solver"])

    async def look(request: Request, fields: Fields, compute: Compute) -> dict[str, Any]:
        source, target = (
            known_language(text_field(fields, name), service.models)
            for name in ("source", "target")
        )
        note(request, pair=f"{source}-{target}")
        work = service.views.look(source, target, compute)
        try:
            return await within(request, service.limits.seconds, work)
        except InputError as error:
            raise RequestError(400, str(error)) from error

    def sentence_of(fields: Fields) -> str:
        text = " ".join(text_field(fields, "q").split())
        if not text:
            raise RequestError(400, "The sentence is empty; type one.")
        if len(text) > service.limits.inside:
            raise RequestError(
                400, f"The view takes one sentence of at most {service.limits.inside} characters."
            )
        return text

    @router.get("")
    async def overview() -> dict[str, Any]:
        """List the pairs whose models can be looked into, and why others cannot."""
        return service.views.overview()

    @router.post("/states", **schema.SENTENCE)
    async def states(request: Request) -> dict[str, Any]:
        """The trajectory of a sentence through the blocks: norms, steps, stages and weights."""
        fields = await service.fields(request)
        sentence = sentence_of(fields)
        return await look(request, fields, lambda inside: inside.states(sentence))

    @router.post("/truncation", **schema.SENTENCE)
    async def truncation(request: Request) -> dict[str, Any]:
        """The truncation error of every block, and that of Euler, RK2 and RK4 at its place."""
        fields = await service.fields(request)
        sentence = sentence_of(fields)
        return await look(request, fields, lambda inside: inside.truncation(sentence))

    @router.post("/methods", **schema.METHODS)
    async def methods(request: Request) -> dict[str, Any]:
        """The translations by the same weights under other methods in one stack."""
        fields = await service.fields(request)
        sentence, stack = sentence_of(fields), choice_field(fields, "stack", ("encoder", "decoder"))
        substeps = max(1, count_field(fields, "substeps", 8))
        return await look(request, fields, lambda inside: inside.methods(sentence, stack, substeps))

    return router
