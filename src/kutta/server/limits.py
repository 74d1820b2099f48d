"""What a client may ask for, and the answers where it asks for more."""

from dataclasses import dataclass

HEAD_BYTES = 65_536  # of the first line and the headers of a request
FAULT = "The server could not answer because of a fault of its own; see its log."


@dataclass(frozen=True)
class Limits:
    """The limits of a server. Requests beyond them are refused at once with one sentence."""

    characters: int = 20_000  # of all texts of a request
    texts: int = 256  # of a list
    alternatives: int = 5  # more are not refused; the answer has so many
    body: int = 1_000_000  # bytes
    fields: int = 20  # of a form
    seconds: float = 30.0  # for a translation
    body_seconds: float = 10.0  # until the whole body is there
    idle_seconds: float = 20.0  # that a connection may be open without a request
    connections: int = 2_000  # beyond it, the longest idle ones are closed
    waiting: int = 100_000  # characters in the queue of a model
    inside: int = 300  # characters of a sentence that is looked into


class RequestError(Exception):
    """A request that is not answered: its status code and one sentence, sent as {"error": ...}."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after


def overloaded(seconds: float) -> RequestError:
    """The answer at once where the queue is full; `seconds` is when it may be free."""
    wait = max(1, min(60, round(seconds)))
    return RequestError(429, f"The server is busy; try again in {wait} s.", wait)


def too_slow(seconds: float) -> RequestError:
    """The answer where the time of a request is used up."""
    message = f"The translation took longer than {seconds:g} s; send less text, or try again later."
    return RequestError(503, message, 5)
