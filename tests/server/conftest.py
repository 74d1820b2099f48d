"""A real server on loopback, with translators whose time and failures a test decides."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi", reason="the extra kutta[serve] is not installed")

from kutta.server.batching import Scored
from kutta.server.keys import Keys
from kutta.server.limits import Limits
from kutta.server.models import Model, load_models
from kutta.server.run import Server, make_server
from kutta.server.service import Service


@dataclass
class Fake:
    """A translator: "text" becomes "text>de", its alternatives "text>de2" and so on."""

    target: str
    seconds: float = 0.0
    error: Exception | None = None
    config: Any = field(default_factory=lambda: SimpleNamespace(beam=4))
    calls: list[tuple[list[str], int, int | None]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)  # waits until it is set

    def __post_init__(self) -> None:
        self.gate.set()

    def hypotheses(
        self, lines: Iterable[str], n_best: int = 1, *, beam: int | None = None
    ) -> list[list[Scored]]:
        sentences = list(lines)
        self.calls.append((sentences, n_best, beam))
        self.gate.wait(6)
        time.sleep(self.seconds)
        if self.error:
            raise self.error
        numbers = ["", *map(str, range(2, n_best + 1))]
        return [[(f"{s}>{self.target}{k}", -1.0) for k in numbers] for s in sentences]


@dataclass
class Running:
    """A server that runs, and a client for it."""

    url: str
    server: Server
    service: Service
    lines: list[str]
    client: httpx.Client

    def post(self, path: str, **fields: Any) -> httpx.Response:
        return self.client.post(path, json=fields)

    def translate(self, q: Any, source: str = "en", target: str = "de", **more: Any) -> Any:
        answer = self.post("/translate", q=q, source=source, target=target, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@contextmanager
def running(
    models: Sequence[Model], limits: Limits | None = None, keys: Sequence[str] = (), **options: Any
) -> Iterator[Running]:
    """Serve models on a free port of loopback until the block ends."""
    lines: list[str] = []
    service = Service.of(models, limits or Limits(), Keys(keys))
    server = make_server(service, log=lines.append, **options)
    server.config.host, server.config.port = "127.0.0.1", 0
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=20, trust_env=False) as client:
            yield Running(url, server, service, lines, client)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def fake_model(source: str, target: str, **facts: Any) -> Model:
    return Model(f"{source}-{target}", source, target, Fake(target, **facts))


def engine_of(model: Model) -> Fake:
    assert isinstance(model.engine, Fake)
    return model.engine


@pytest.fixture(scope="session")
def served() -> Iterator[Running]:
    """English to German, German to English, French to English; read only."""
    models = [fake_model("en", "de"), fake_model("de", "en"), fake_model("fr", "en")]
    with running(models) as one:
        yield one


@pytest.fixture(scope="session")
def toy_served(toy_run: Path) -> Iterator[Running]:
    """A real model of the invented languages xx and yy."""
    with running(load_models([str(toy_run)], "cpu")) as one:
        yield one


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
