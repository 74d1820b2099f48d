"""Reporting of training: progress bar, train.log, metrics.jsonl, TensorBoard."""

import math
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from kutta.errors import InputError
from kutta.files import write_text
from kutta.parsing import record_line
from kutta.runs import Run
from kutta.training.loop import Step
from kutta.training.validate import Validation
from kutta.training.window import Window


class Reporter:
    """Writes and prints a run's records. Records after the resumed step are dropped first."""

    def __init__(
        self, run: Run, first_step: int, console: Console, window: Window | None = None
    ) -> None:
        self.settings, self.console = run.config.train, console
        self.window = window or Window()  # since the last record
        self.rate = 0.0
        if run.metrics.is_file():  # drop the records of steps that are repeated after resuming
            kept = [record for record in run.records() if record["step"] <= first_step]
            write_text(run.metrics, "".join(map(record_line, kept)))
        self.files = ExitStack()
        self.metrics, self.log = self._append_to(run.metrics), self._append_to(run.log)
        self.events: Any = None
        if self.settings.tensorboard:
            from torch.utils.tensorboard.writer import SummaryWriter  # slow to import, and optional

            self.events = cast(Any, SummaryWriter)(str(run.events), purge_step=first_step + 1)
            self.files.callback(self.events.close)
        self.bar = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("", total=self.settings.max_steps, completed=first_step)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        with suppress(OSError):  # the write that failed has reported a full disk
            self.files.close()

    def step(self, step: Step) -> None:
        """Report an update."""
        self.window = self.window.add(step)
        speed = step.tokens_per_second
        self.rate = speed if self.rate == 0.0 else 0.95 * self.rate + 0.05 * speed
        tokens_left = (self.settings.max_steps - step.number) * step.tokens
        left = timedelta(seconds=int(tokens_left / self.rate))
        self.bar.update(
            self.task,
            completed=step.number,
            description=f"loss {step.loss:.3f}  {self.rate:,.0f} tokens/s  {left} left",
        )
        if step.skipped:
            self.info(f"step {step.number}: the loss or a gradient was not finite; update skipped")
        if step.number % self.settings.log_every == 0:
            record, self.window = self.window.record(step), Window()
            self._record(record)
            self.info(
                f"step {step.number}  epoch {step.epoch}  loss {record['loss']:.3f}  "
                f"ppl {record['perplexity']:.2f}  lr {step.lr:.2e}  "
                f"{record['tokens_per_second']:,.0f} tokens/s  {left} left",
                shown=not self.console.is_terminal,
            )

    def validation(self, step: int, result: Validation, new_best: bool) -> None:
        """Report a validation."""
        self._record({"kind": "valid", "step": step} | result.to_dict())
        bleu = "" if result.bleu is None else f"  BLEU {result.bleu.value:.2f}"
        star = "  (best so far)" if new_best else ""
        self.info(
            f"step {step}  validation loss {result.loss:.3f}  "
            f"ppl {result.perplexity:.2f}{bleu}{star}"
        )

    def final(self, record: dict[str, Any], text: str) -> None:
        """Report the final model."""
        self._record(record)
        self.sync()
        self.info(text)

    def info(self, text: str, shown: bool = True) -> None:
        """Write a line to train.log, and to the console if `shown`."""
        self._write(self.log, f"{text}\n")
        if shown:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def sync(self) -> None:
        """Flush the records to disk: a checkpoint is resumed with the records before it."""
        with _reported(self.metrics.name):
            os.fsync(self.metrics.fileno())

    def _record(self, record: dict[str, Any]) -> None:
        # JSON has no nan: non-finite numbers become null.
        known = {k: v for k, v in record.items() if not isinstance(v, float) or math.isfinite(v)}
        self._write(self.metrics, record_line(dict.fromkeys(record) | known))
        if self.events is not None:
            for name, value in known.items():
                if isinstance(value, float):
                    self.events.add_scalar(f"{record['kind']}/{name}", value, record["step"])

    def _append_to(self, path: Path) -> TextIO:
        with _reported(str(path)):
            return self.files.enter_context(open(path, "a", encoding="utf-8"))

    def _write(self, file: TextIO, line: str) -> None:
        with _reported(file.name):
            file.write(line)
            file.flush()


class NullReporter:
    """The reporter of all ranks but 0: it reports nothing."""

    window = Window()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def step(self, step: Step) -> None: ...

    def validation(self, step: int, result: Validation, new_best: bool) -> None: ...

    def final(self, record: dict[str, Any], text: str) -> None: ...

    def info(self, text: str, shown: bool = True) -> None: ...

    def sync(self) -> None: ...


def recorded_validation(run: Run, step: int | None = None) -> Validation | None:
    """The recorded validation of this step, by default the newest; None if there is none."""
    found = [r for r in run.records() if r["kind"] == "valid" and step in (None, r["step"])]
    return Validation.from_dict(found[-1]) if found else None


@contextmanager
def _reported(name: str) -> Generator[None]:
    """Report a file that cannot be written in one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"Cannot write {name}: {error.strerror or error}; the checkpoints are kept. "
            "Free some disk space or check its permissions, then run the same command to resume."
        ) from error
