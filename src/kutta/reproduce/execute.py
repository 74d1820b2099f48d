"""Making the runs of a plan: one after another here, or several side by side as processes."""

import hashlib
import json
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

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

from rich.console import Console

from kutta.config import Config
from kutta.demo.grammar import write_corpus
from kutta.errors import InputError
from kutta.files import link_or_copy
from kutta.reproduce.perform import Result, perform
from kutta.reproduce.plan import Plan, Run
from kutta.training.folder import is_prepared, open_run, prepare_run
from kutta.training.stopping import asked_to_stop

# A run that ended: its result, the sentence that says why it failed, or None where it was stopped.
Ending = Result | InputError | None

_LOOK_EVERY = 0.2  # seconds between looks at the processes


def say(console: Console, text: str) -> None:
    """A line of plain words."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def sole_worker(folder: Path) -> Generator[int]:
    """Hold the folder's lock: two processes would train the same runs into each other.

    Runs side by side inherit it, so it is held until the last of them has ended, also where the
    process that began them was killed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(
            f"Cannot write to {folder}: {error.strerror or error}; choose another --out."
        ) from None
    try:
        _lock(handle, folder)
        yield handle
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"Another process is at work in {folder}; wait until it ends, or end it first."
        ) from None


def write_text_of(plan: Plan, console: Console) -> None:
    """Write the text of the built-in grammar, where the experiment asks for it."""
    text, sentences = plan.folder / "text", plan.scale.builtin
    if sentences is not None and not (text / "test.de").is_file():  # it is written last
        say(console, f"Writing {sentences.train:,} pairs of our own grammar to {text}")
        write_corpus(text, **sentences.model_dump())


def share_text(config: Config, folder: Path, console: Console) -> None:
    """Give a run its tokenizers and stores: prepared once, linked into every run of that text."""
    run = open_run(config)
    if is_prepared(run):
        return
    key = hashlib.sha256(config.data.model_dump_json(exclude={"dir", "test"}).encode()).hexdigest()
    made = open_run(config.model_copy(update={"run": str(folder / "prepared" / key[:10])}))
    report = prepare_run(config, made)
    if report is not None:
        say(console, str(report))
    files = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
    done = Path("store", "report.json")  # says that all is there, so it comes last
    for file in [f for f in files if f not in (Path("config.json"), done)] + [done]:
        link_or_copy(made / file, run / file)


def one_by_one(plan: Plan, runs: Sequence[Run], console: Console) -> Iterator[tuple[Run, Ending]]:
    """Make the runs here, in this process, in order; stops where it is asked to."""
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
    """A run in a process of its own, and what it says."""

    run: Run
    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def ending(self) -> Ending:
        """What came of it, once the process has ended."""
        code = self.process.returncode
        if code == 0:
            return Result(**json.loads(self.out.read_text(encoding="utf-8")))
        if code in (130, -signal.SIGTERM, -signal.SIGINT):
            return None
        said = self.err.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return InputError(said[-1] if said else f"its process ended with the code {code}.")


def side_by_side(
    plan: Plan, runs: Sequence[Run], jobs: int, lock: int, console: Console
) -> Iterator[tuple[Run, Ending]]:
    """Make the runs in `jobs` processes at a time, one core each; stops where it is asked to."""
    waiting, working, told = list(runs), list[_Process](), False
    with TemporaryDirectory() as said, ExitStack() as last, asked_to_stop() as asked:
        last.callback(_tell, working)  # whatever happens here, they save and stop
        while working or (waiting and not asked):
            if waiting and len(working) < jobs and not asked:
                run = waiting.pop(0)
                try:
                    share_text(run.config, plan.folder, console)
                except InputError as error:
                    yield run, error
                    continue
                say(console, f"started {run.name}")
                working.append(_start(plan, run, lock, Path(said)))
                continue
            if asked and not told:  # once: a second signal would end them without saving
                _tell(working)
                told = True
            time.sleep(_LOOK_EVERY)
            for ended in [each for each in working if each.process.poll() is not None]:
                working.remove(ended)
                yield ended.run, ended.ending()


def _start(plan: Plan, run: Run, lock: int, said: Path) -> _Process:
    out, err = said / f"{run.name}.out", said / f"{run.name}.err"
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "kutta.reproduce.perform", str(plan.folder), run.name],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            pass_fds=[lock],
            start_new_session=True,  # Ctrl-C reaches us alone; we pass it on
        )
    return _Process(run, process, out, err)


def _tell(working: Sequence[_Process]) -> None:
    """Ask processes to save and stop."""
    for each in working:
        with suppress(ProcessLookupError):
            each.process.send_signal(signal.SIGTERM)
