"""Being asked to stop: Ctrl-C and SIGTERM become a note that the training reads between updates."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def asked_to_stop() -> Generator[list[str]]:
    """A list that is empty until Ctrl-C or SIGTERM arrives; a second Ctrl-C ends at once.

    SIGTERM may come twice by itself: from a cluster to all processes, and from torchrun to its own.
    """
    asked: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(signal.Signals(number).name)

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread (a notebook's worker): signals are not ours
        yield asked
        return
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
