"""What happens to every request: security headers, the access log, metrics, and errors as JSON."""

import json
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kutta.server.metrics import Metrics

# Only our own files are loaded, and no script or style is inline.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
NOTES = "notes"  # in the state of a request: what the access log says about it

Log = Callable[[str], None]


def to_stdout(line: str) -> None:
    """Write a line of the access log; a reader that has gone does not stop the server."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stdout, flush=True)


class Front:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log: Log) -> None:
        self.app, self.metrics, self.log = app, metrics, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        notes: dict[str, Any] = {}
        scope.setdefault("state", {})[NOTES] = notes
        started, status = time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception as error:  # a fault of ours: said in the log, and the server goes on
            notes["fault"] = fault_of(error)
            status = 500
        finally:
            seconds = time.perf_counter() - started
            path = _path(scope)
            self.metrics.request(path, status, seconds)
            self.log(_line(scope, path, status, seconds, notes))


def fault_of(error: BaseException) -> str:
    """Where an error came from. Its message may have parts of a text, so it is left out."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown"
    return f"{type(error).__name__} at {place}"


def _path(scope: Scope) -> str:
    """The path of the route: there are few, and no text is in them."""
    if scope["path"].startswith("/static/"):
        return "/static"
    return str(getattr(scope.get("route"), "path", "")) or "other"


def _line(scope: Scope, path: str, status: int, seconds: float, notes: dict[str, Any]) -> str:
    """One line of the access log. It has no text, no key and no query string."""
    client: Any = scope.get("client") or [""]
    return json.dumps(
        {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "client": client[0],
            "method": scope["method"],
            "path": path,
            "status": status,
            "ms": round(seconds * 1000, 1),
            **notes,
        }
    )
