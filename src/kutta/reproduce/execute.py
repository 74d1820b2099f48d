"""Executing the runs of a plan: sequentially in this process, or in parallel processes."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from kutta.config import Config
from kutta.demo.grammar import write_corpus
from kutta.errors import InputError
from kutta.files import locked_folder
from kutta.parsing import read_json
from kutta.reproduce.perform import Result, perform
from kutta.reproduce.plan import Plan, PlannedRun
from kutta.runs import open_run, prepare_run
from kutta.runs.preparing import share_prepared
from kutta.training.stopping import asked_to_stop

# How a run ended: its result, the error if it failed, or None if it was interrupted.
Ending = Result | InputError | None

_POLL_EVERY = 0.2  # seconds


def print_line(console: Console, text: str) -> None:
    """Print a line without markup."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def locked_reproduction(folder: Path) -> Generator[int]:
    """Hold the lock of a reproduction, so that no other process trains the same runs.

    Parallel runs inherit it, so it is held until the last of them has exited, even if the process
    that started them was killed.
    """
    busy = f"Another process is running in {folder}; wait until it exits, or stop it first."
    with ExitStack() as held:
        try:
            handle = held.enter_context(locked_folder(folder, busy))
        except OSError as error:
            raise InputError(
                f"Cannot write to {folder}: {error.strerror or error}; choose another --out."
            ) from None
        yield handle


def write_text_of(plan: Plan, console: Console) -> None:
    """Write the text of the built-in grammar, if the experiment uses it."""
    text, sentences = plan.folder / "text", plan.scale.builtin
    if sentences is not None and not (text / "test.de").is_file():  # it is written last
        print_line(console, f"Writing {sentences.train:,} pairs of the built-in grammar to {text}")
        write_corpus(text, **sentences.model_dump())


def share_text(config: Config, folder: Path, console: Console) -> None:
    """Give a run its tokenizers and stores: prepared once, linked into every run of that text."""
    run = open_run(config)
    if run.is_prepared:
        return
    key = hashlib.sha256(config.data.model_dump_json(exclude={"dir"}).encode()).hexdigest()
    made = open_run(config.model_copy(update={"run": str(folder / "prepared" / key[:10])}))
    report = prepare_run(made)
    if report is not None:
        print_line(console, str(report))
    share_prepared(made, run)


def one_by_one(
    plan: Plan, runs: Sequence[PlannedRun], console: Console
) -> Iterator[tuple[PlannedRun, Ending]]:
    """Execute the runs sequentially in this process; stop on an interruption."""
    for run in runs:
        try:
            share_text(run.config, plan.folder, console)
            ending = perform(run.config, plan.experiment.metric, console)
        except InputError as error:
            ending = error
        yield run, ending
        if ending is None:
            return


@dataclass
class _Process:
    """A run in its own process, and the files of its output."""

    run: PlannedRun
    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def ending(self) -> Ending:
        """How the run ended, after the process has exited."""
        code = self.process.returncode
        if code == 0:
            return Result(**read_json(self.out))
        if code in (130, -signal.SIGTERM, -signal.SIGINT):
            return None
        lines = self.err.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return InputError(lines[-1] if lines else f"its process exited with code {code}.")


def side_by_side(
    plan: Plan, runs: Sequence[PlannedRun], jobs: int, lock: int, console: Console
) -> Iterator[tuple[PlannedRun, Ending]]:
    """Execute the runs in `jobs` processes, one core each; stop on an interruption."""
    waiting, working, stopped = list(runs), list[_Process](), False
    with TemporaryDirectory() as output, ExitStack() as last, asked_to_stop() as asked:
        last.callback(_stop, working)  # in any case they save and stop
        while working or (waiting and not asked):
            if waiting and len(working) < jobs and not asked:
                run = waiting.pop(0)
                try:
                    share_text(run.config, plan.folder, console)
                except InputError as error:
                    yield run, error
                    continue
                print_line(console, f"started {run.name}")
                working.append(_start(plan, run, lock, Path(output)))
                continue
            if asked and not stopped:  # once: a second signal would stop them without saving
                _stop(working)
                stopped = True
            time.sleep(_POLL_EVERY)
            for ended in [each for each in working if each.process.poll() is not None]:
                working.remove(ended)
                yield ended.run, ended.ending()


def _start(plan: Plan, run: PlannedRun, lock: int, output: Path) -> _Process:
    out, err = output / f"{run.name}.out", output / f"{run.name}.err"
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "kutta.reproduce.perform", str(plan.folder), run.name],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            pass_fds=[lock],
            start_new_session=True,  # Ctrl-C reaches only this process, which passes it on
        )
    return _Process(run, process, out, err)


def _stop(working: Sequence[_Process]) -> None:
    """Signal processes to save and stop."""
    for each in working:
        with suppress(ProcessLookupError):
            each.process.send_signal(signal.SIGTERM)
