"""The parts of a running server, made once and given to every route."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request

from kutta.server.fields import Fields, read_fields
from kutta.server.front import NOTES
from kutta.server.keys import Keys
from kutta.server.languages import Detector
from kutta.server.limits import Limits
from kutta.server.metrics import Metrics
from kutta.server.models import Model, Models
from kutta.server.views import Views


@dataclass(frozen=True)
class Service:
    """The models with their queues, the limits, the keys and the counters of a server."""

    models: Models
    limits: Limits
    keys: Keys
    metrics: Metrics
    detector: Detector
    views: Views
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, models: Sequence[Model], limits: Limits, keys: Keys) -> "Service":
        """Start the queues of the models."""
        metrics = Metrics()
        observers = [metrics.batches_of(model.pair) for model in models]
        running = Models(models, limits, observers)
        for one in running.served:
            metrics.watch_queue(one.model.pair, lambda one=one: float(one.batcher.waiting))
        return cls(running, limits, keys, metrics, Detector(running.codes), Views(models))

    async def fields(self, request: Request) -> Fields:
        """The fields of a request whose key is valid."""
        fields = await read_fields(request, self.limits)
        self.keys.check(request, fields)
        return fields

    def close(self) -> None:
        self.models.close()
        self.views.close()


def note(request: Request, **facts: Any) -> None:
    """Add facts to the line of a request in the access log; never its text."""
    getattr(request.state, NOTES).update(facts)
