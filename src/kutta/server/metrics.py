"""The numbers that /metrics shows, for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SENTENCES = (1, 2, 4, 8, 16, 32)


class Metrics:
    """Counters of one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "kutta_requests_total",
            "Requests by path and status.",
            ["path", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "kutta_request_seconds",
            "Time of a request.",
            ["path"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._sentences = Counter(
            "kutta_sentences_total", "Sentences translated.", ["pair"], registry=registry
        )
        self._batches = Histogram(
            "kutta_batch_sentences",
            "Sentences that were translated together.",
            ["pair"],
            buckets=_SENTENCES,
            registry=registry,
        )
        self._search = Histogram(
            "kutta_batch_seconds", "Time of a batch.", ["pair"], buckets=_SECONDS, registry=registry
        )
        self._waiting = Gauge(
            "kutta_waiting_characters", "Characters in the queue.", ["pair"], registry=registry
        )

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def batches_of(self, pair: str) -> Callable[[int, float], None]:
        """Counts the batches of a model by their sentences and seconds."""

        def observe(sentences: int, seconds: float) -> None:
            self._sentences.labels(pair).inc(sentences)
            self._batches.labels(pair).observe(sentences)
            self._search.labels(pair).observe(seconds)

        return observe

    def watch_queue(self, pair: str, waiting: Callable[[], float]) -> None:
        """Show the length of a queue at the time of asking."""
        self._waiting.labels(pair).set_function(waiting)

    def page(self) -> bytes:
        """All numbers in the text format of Prometheus."""
        return generate_latest(self.registry)
