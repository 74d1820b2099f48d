"""The views into models, one for each model that has one, and the thread that computes them.

A view needs torch and a run directory. It works on a copy of the model, so it never disturbs a
translation.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kutta.errors import InputError
from kutta.server.limits import RequestError, overloaded
from kutta.server.models import Model

if TYPE_CHECKING:
    from kutta.server.inside import Inside

_MOST_WAITING = 4  # requests; a view takes seconds

Compute = Callable[["Inside"], dict[str, Any]]


def missing(model: Model) -> str | None:
    """Why there is no view into a model, in one sentence; None if there is one."""
    if model.folder is None:
        return (
            "The view takes a model apart, block by block, so it needs a run directory or an "
            f"exported model; {model.name} has none. Serve its run to look inside."
        )
    if find_spec("torch") is None:
        return (
            "The view takes a model apart, block by block, which needs PyTorch; run "
            "`pip install 'kutta[train]'` to look inside."
        )
    return None


class Views:
    """Looks into models, one request after the other."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = {model.pair: model for model in models}
        self._open: dict[str, Inside] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="inside")
        self._lock, self._waiting = threading.Lock(), 0

    def overview(self) -> dict[str, Any]:
        """The pairs that can be looked into, and why others cannot."""
        reasons = {pair: missing(model) for pair, model in self._models.items()}
        return {
            "pairs": [pair for pair, reason in reasons.items() if reason is None],
            "missing": {pair: reason for pair, reason in reasons.items() if reason},
        }

    async def look(self, source: str, target: str, compute: Compute) -> dict[str, Any]:
        """What `compute` says about the model of a pair. Cancelling drops what has not begun."""
        model = self._models.get(f"{source}-{target}")
        if model is None:
            raise RequestError(
                400, f"There is no single model from {source} to {target} to look into."
            )
        if reason := missing(model):
            raise RequestError(404, reason)
        with self._lock:
            if self._waiting >= _MOST_WAITING:
                raise overloaded(5.0)
            self._waiting += 1
        future = self._thread.submit(lambda: compute(self._inside(model)))
        future.add_done_callback(lambda _: self._finished())
        return await asyncio.wrap_future(future)

    def _finished(self) -> None:
        with self._lock:
            self._waiting -= 1

    def _inside(self, model: Model) -> "Inside":
        """The view, opened at its first use."""
        if model.pair not in self._open:
            from kutta.server.inside import Inside  # imports torch

            assert model.folder is not None
            try:
                self._open[model.pair] = Inside.of(model.folder, model.engine)
            except InputError as error:  # the folder has vanished or was changed meanwhile
                raise RequestError(503, str(error)) from error
        return self._open[model.pair]

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
