"""The application: routes, the page, and errors as {"error": ...}."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from kutta import __version__
from kutta.server.api import inside_routes, routes
from kutta.server.front import Front, Log, to_stdout
from kutta.server.limits import FAULT, RequestError
from kutta.server.service import Service

STATIC = Path(__file__).parent / "static"
_SENTENCES = {
    404: "There is nothing at this path; /docs lists what there is.",
    405: "This path does not take this method; /docs lists what it takes.",
}


def create_app(service: Service, cors: Sequence[str] = (), log: Log = to_stdout) -> ASGIApp:
    """The ASGI application of a service, which it closes when it ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        service.close()

    app = FastAPI(
        title="Kutta",
        version=__version__,
        description="Translation by ODE Transformers, with the API of LibreTranslate.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.include_router(routes(service))
    app.include_router(inside_routes(service))
    _add_pages(app)
    _add_errors(app)
    if cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    return Front(app, service.metrics, log)


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html", headers={"cache-control": "no-cache"})

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> FileResponse:
        return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml")

    app.mount("/static", StaticFiles(directory=STATIC), name="static")


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestError)
        headers = {"retry-after": str(error.retry_after)} if error.retry_after else None
        return JSONResponse({"error": error.message}, error.status, headers)

    @app.exception_handler(HTTPException)
    async def no_route(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        sentence = _SENTENCES.get(error.status_code, str(error.detail))
        return JSONResponse({"error": sentence}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def fault(_: Request, __: Exception) -> JSONResponse:  # the log says where
        return JSONResponse({"error": FAULT}, 500)
