"""Reporting of training: progress bar, train.log, metrics.jsonl, TensorBoard."""

import json
import math
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from kutta.errors import InputError
from kutta.files import write_text
from kutta.runs import Run
from kutta.runs.run import read_records
from kutta.training.loop import Step
from kutta.training.validate import Validation


class _Events(Protocol):
    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...
    def close(self) -> None: ...


class Window:
    """Means over the steps since the last log record."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.steps = self.tokens = self.skipped = 0
        self.seconds = self.loss = self.nll = self.grad_norm = 0.0

    def add(self, step: Step) -> None:
        self.tokens += step.tokens
        self.seconds += step.seconds
        if step.skipped:
            self.skipped += 1
            return
        self.steps += 1
        self.loss += step.loss
        self.nll += step.nll
        self.grad_norm += step.grad_norm

    def to_dict(self, step: Step) -> dict[str, Any]:
        n = self.steps or math.nan  # if all were skipped, there is no mean
        return {
            "kind": "train",
            "step": step.number,
            "epoch": step.epoch,
            "loss": self.loss / n,
            "perplexity": math.exp(min(self.nll / n, 50.0)),
            "lr": step.lr,
            "grad_norm": self.grad_norm / n,
            "tokens": self.tokens,
            "tokens_per_second": self.tokens / max(self.seconds, 1e-9),
            "skipped": self.skipped,
        }


class Reporter:
    """Writes and prints a run's records. Records after the resumed step are dropped first."""

    def __init__(
        self,
        run: Run,
        first_step: int,
        max_steps: int,
        log_every: int,
        tensorboard: bool,
        console: Console,
    ) -> None:
        self.console = console
        self.log_every = log_every
        self.max_steps = max_steps
        self.window = Window()
        self.rate = 0.0
        _drop_after(run.metrics, first_step)
        self.files = ExitStack()
        self.metrics = self.files.enter_context(_appending(run.metrics))
        self.log = self.files.enter_context(_appending(run.log))
        self.events: _Events | None = _events(run, first_step) if tensorboard else None
        self.bar = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("", total=max_steps, completed=first_step)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        with suppress(OSError):  # the write that failed has reported a full disk
            self.files.close()
        with suppress(OSError):
            if self.events is not None:
                self.events.close()

    def step(self, step: Step) -> None:
        """Report an update."""
        self.window.add(step)
        speed = step.tokens / max(step.seconds, 1e-9)
        self.rate = speed if self.rate == 0.0 else 0.95 * self.rate + 0.05 * speed
        left = timedelta(seconds=int((self.max_steps - step.number) * step.tokens / self.rate))
        self.bar.update(
            self.task,
            completed=step.number,
            description=f"loss {step.loss:.3f}  {self.rate:,.0f} tokens/s  {left} left",
        )
        if step.skipped:
            self.info(f"step {step.number}: the loss or a gradient was not finite; update skipped")
        if step.number % self.log_every == 0:
            record = self.window.to_dict(step)
            self.window.clear()
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

    def info(self, text: str, shown: bool = True) -> None:
        """Write a line to train.log, and to the console if `shown`."""
        _write_line(self.log, text)
        if shown:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _record(self, record: dict[str, Any]) -> None:
        # JSON has no nan: non-finite numbers become null.
        known = {k: v for k, v in record.items() if not isinstance(v, float) or math.isfinite(v)}
        _write_line(self.metrics, json.dumps(dict.fromkeys(record) | known))
        if self.events is not None:
            kind, step = str(record["kind"]), int(record["step"])
            for name, value in known.items():
                if isinstance(value, float):
                    self.events.add_scalar(f"{kind}/{name}", value, step)


class NullReporter:
    """The reporter of all ranks but 0: it reports nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def step(self, step: Step) -> None: ...

    def validation(self, step: int, result: Validation, new_best: bool) -> None: ...

    def info(self, text: str, shown: bool = True) -> None: ...


def last_validation(run: Run) -> Validation | None:
    """The newest recorded validation; None if there is none."""
    records = [record for record in run.records() if record["kind"] == "valid"]
    return Validation.from_dict(records[-1]) if records else None


def validation_at(run: Run, step: int) -> Validation | None:
    """The recorded validation of this step; None if there is none."""
    records = (r for r in run.records() if (r["kind"], r["step"]) == ("valid", step))
    found = next(records, None)
    return Validation.from_dict(found) if found else None


def _appending(path: Path) -> TextIO:
    try:
        return open(path, "a", encoding="utf-8")
    except OSError as error:
        raise _cannot_write(str(path), error) from error


def _write_line(file: TextIO, line: str) -> None:
    try:
        file.write(line + "\n")
        file.flush()
    except OSError as error:
        raise _cannot_write(file.name, error) from error


def _cannot_write(name: str, error: OSError) -> InputError:
    return InputError(
        f"Cannot write {name}: {error.strerror or error}; the checkpoints are kept. "
        "Free some disk space or check its permissions, then run the same command to resume."
    )


def _drop_after(path: Path, step: int) -> None:
    """Drop the records of steps that are repeated after resuming."""
    if path.is_file():
        kept = [record for record in read_records(path) if record["step"] <= step]
        write_text(path, "".join(json.dumps(record) + "\n" for record in kept))


def _events(run: Run, first_step: int) -> _Events:
    from torch.utils.tensorboard.writer import SummaryWriter  # slow to import, and optional

    make: Callable[..., _Events] = SummaryWriter
    return make(str(run.events), purge_step=first_step + 1)
