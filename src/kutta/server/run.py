"""Runs a server until it is told to stop."""

import asyncio
import ipaddress
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from kutta.errors import InputError
from kutta.server.app import create_app
from kutta.server.keys import Keys
from kutta.server.limits import Limits
from kutta.server.models import load_models
from kutta.server.protocol import Protocol
from kutta.server.service import Service

_GRACE = 30  # seconds for requests under way when the server is told to stop
_SWEEP = 1.0  # seconds between two looks at the connections


@dataclass(frozen=True)
class Request:
    """What to serve and where."""

    models: Sequence[str] = ()
    host: str = "127.0.0.1"
    port: int = 5000
    api_keys: Path | None = None
    cors: Sequence[str] = ()
    device: str = "auto"
    limits: Limits = field(default_factory=Limits)


def serve(request: Request, say: Callable[[str], None] = print) -> None:
    """Load the models and serve them; SIGTERM and Ctrl-C finish what was begun, and stop."""
    keys = Keys.read(request.api_keys) if request.api_keys else Keys()
    listening = _listen(request.host, request.port)  # before the models: the port may be taken
    with listening:
        _warn_of_network(request.host, keys)
        _allow_connections(request.limits.connections)
        service = Service.of(load_models(request.models, request.device), request.limits, keys)
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        pairs = ", ".join(one.model.pair for one in service.models.served)
        say(f"Serving {pairs} on http://{shown}:{port} (Ctrl-C stops)")
        server = make_server(service, request.cors)
        stop = signal.signal(signal.SIGTERM, _stopped)
        try:
            with suppress(KeyboardInterrupt):
                server.run([listening])
        finally:
            signal.signal(signal.SIGTERM, stop)
            service.close()


def make_server(service: Service, cors: Sequence[str] = (), **options: Any) -> "Server":
    """A uvicorn server for a service."""
    config = uvicorn.Config(
        create_app(service, cors, **options),
        http=Protocol,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=_GRACE,
    )
    return Server(config, service.limits)


class Server(uvicorn.Server):
    """uvicorn with a limit on connections that are open without a request.

    uvicorn closes a connection that is idle after a request, but not one that never sends a request
    or only half of one.
    """

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self.limits = limits
        self._idle_since: dict[Any, float] = {}

    async def main_loop(self) -> None:
        sweeper = asyncio.ensure_future(self._sweep())
        try:
            await super().main_loop()
        finally:
            sweeper.cancel()

    async def _sweep(self) -> None:
        while True:
            self.close_idle(time.monotonic())
            await asyncio.sleep(_SWEEP)

    def close_idle(self, now: float) -> None:
        """Close connections that have been idle too long, and the longest idle if too many."""
        idle = {one for one in self.server_state.connections if _is_idle(one)}
        self._idle_since = {one: self._idle_since.get(one, now) for one in idle}
        excess = len(self.server_state.connections) - self.limits.connections
        oldest = sorted(idle, key=lambda one: self._idle_since[one])
        for number, one in enumerate(oldest):
            if number < excess or now - self._idle_since[one] > self.limits.idle_seconds:
                one.transport.close()


def _stopped(*_: object) -> None:
    """uvicorn raises the signal that stopped it again when it has finished."""
    sys.exit(0)


def _is_idle(connection: Any) -> bool:
    """Whether a connection has no request that is being answered."""
    cycle = connection.cycle
    return cycle is None or cycle.response_complete


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, or one sentence."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"Cannot listen on {host} port {port} ({reason}); choose another --port or --host."
        ) from error


def _warn_of_network(host: str, keys: Keys) -> None:
    """One sentence where others than this machine can connect."""
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    if host == "localhost":
        return
    doubt = "" if keys.required else " without API keys (--api-keys)"
    warnings.warn(
        f"{host} lets other machines connect{doubt}; traffic is not encrypted, so put a reverse "
        "proxy with TLS before the server.",
        stacklevel=2,
    )


def _allow_connections(count: int) -> None:
    """Raise the limit of open files of this process, as every connection is one."""
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 256
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
