"""Graceful stop: Ctrl-C and SIGTERM set a flag that training reads between updates."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def asked_to_stop() -> Generator[list[str]]:
    """A list that is empty until Ctrl-C or SIGTERM arrives; a second Ctrl-C exits at once.

    SIGTERM may arrive twice: from the cluster to all processes, and from torchrun to its workers.
    """
    asked: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(signal.Signals(number).name)

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread (a notebook's worker): no signal handling
        yield asked
        return
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
