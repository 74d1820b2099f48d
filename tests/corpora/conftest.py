"""A web server on loopback that behaves badly on request."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class Reply:
    """How one request is answered."""

    status: int = 200
    cut: int | None = None  # close the connection after so many bytes of the body
    stall: int | None = None  # fall silent after so many
    piece: int | None = None  # answer a Range with so many bytes of it only
    ranges: bool = True  # honour Range and If-Range
    length: bool = True  # tell the Content-Length
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """A request as the server saw it."""

    path: str
    range: str
    if_range: str
    status: int
    sent: int


class Server(ThreadingHTTPServer):
    """Serves `files`; answers by `plans[path]`, one after the other, then by `usual`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.etag = '"1"'
        self.plans: dict[str, list[Reply]] = {}
        self.usual = Reply()
        self.seen: list[Seen] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def sent(self) -> int:
        """Bytes of all bodies of files together."""
        return sum(request.sent for request in self.seen if request.status in (200, 206))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        waiting = self.server.plans.get(self.path, [])
        plan = waiting.pop(0) if waiting else self.server.usual
        body = self.server.files.get(self.path)
        if plan.status != 200 or body is None:
            return self.answer(plan.status if plan.status != 200 else 404, b"", plan)
        start = self.start_of(plan)
        if start >= len(body) > 0:
            range_ = {"Content-Range": f"bytes */{len(body)}"}
            return self.answer(416, b"", plan, range_)
        if start:
            piece = body[start:][: plan.piece]
            range_ = {"Content-Range": f"bytes {start}-{start + len(piece) - 1}/{len(body)}"}
            return self.answer(206, piece, plan, range_)
        return self.answer(200, body, plan)

    def start_of(self, plan: Reply) -> int:
        wanted = self.headers.get("Range", "")
        unchanged = self.headers.get("If-Range", self.server.etag) == self.server.etag
        if not (plan.ranges and wanted and unchanged):
            return 0
        return int(wanted.removeprefix("bytes=").removesuffix("-"))

    def answer(
        self, status: int, body: bytes, plan: Reply, headers: dict[str, str] | None = None
    ) -> None:
        kept = body[: plan.cut if plan.cut is not None else plan.stall]
        asked = self.headers.get("Range", ""), self.headers.get("If-Range", "")
        self.server.seen.append(Seen(self.path, *asked, status, len(kept)))
        self.send_response(status)
        if plan.length:
            self.send_header("Content-Length", str(len(body)))
        if self.server.etag and status in (200, 206):
            self.send_header("ETag", self.server.etag)
        for name, value in ((headers or {}) | plan.headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(kept)
        if plan.stall is not None:
            self.wfile.flush()
            self.server.closing.wait(2)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Server()
    thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield running
    running.closing.set()
    running.shutdown()
    running.server_close()
    thread.join()
