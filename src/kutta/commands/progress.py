"""What a person sees while a command works: a progress bar and remarks, on standard error."""

import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text


def remark(sentence: str) -> None:
    """Print a sentence on standard error."""
    print(f"kutta: {sentence}", file=sys.stderr)


@contextmanager
def progress(
    what: str, total: Callable[[], int | None], shown: bool = True
) -> Generator[Callable[[int], None] | None]:
    """A progress bar for lines while standard error is a terminal.

    `total` counts the lines, if that is possible. Yields the function to call with a number of
    further lines; None if there is no bar.
    """
    # rich takes other streams for terminals too, e.g. if FORCE_COLOR is set.
    if not shown or not sys.stderr.isatty():
        yield None
        return
    # On a narrow terminal only the bar shrinks.
    lines = _Lines(Column(no_wrap=True))
    columns = TextColumn("{task.description}"), BarColumn(), lines, TimeRemainingColumn()
    # Standard output stays as it is: rich would write it to standard error.
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False
    ) as bar:
        task = bar.add_task(what, total=total())
        yield lambda lines: bar.advance(task, lines)


class _Lines(ProgressColumn):
    """Lines done, of how many if that is known, and lines per second."""

    def render(self, task: Task) -> Text:
        total = f" of {task.total:,.0f}" if task.total is not None else ""
        speed = f", {task.speed:,.1f} lines/s" if task.speed else ""
        return Text(f"{task.completed:,.0f}{total} lines{speed}")


@contextmanager
def uninterrupted() -> Generator[None]:
    """Delay Ctrl-C to the end of the block, so that what the block writes is complete."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[FrameType | None] = []

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(frame)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed and callable(before):
        before(signal.SIGINT, pressed[0])
