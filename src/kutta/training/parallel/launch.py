"""Starting the ranks of one machine with torch's launcher, and telling what became of them."""

import json
import logging
import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from kutta.errors import InputError
from kutta.runs.checkpoints import list_checkpoints
from kutta.runs.division import Division

_LAUNCHER = "torch.distributed.elastic"  # the name that its loggers begin with
_WORKER = "kutta.training.parallel.worker"
_SAVE_WITHIN = 600  # seconds for a rank to finish its update and save when it is asked to stop


def launch(run: Path, division: Division, quiet: bool = False) -> dict[str, Any]:
    """Train a prepared run with the ranks of a division; the step and how it ended.

    An interruption ends the ranks in order: they save and stop.
    """
    with tempfile.TemporaryDirectory(prefix="kutta-") as folder, _quiet_launcher():
        outcome = Path(folder) / "outcome.json"
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=division.processes,
            run_id=uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            local_addr="127.0.0.1",
            logs_specs=DefaultLogsSpecs(log_dir=folder),
            shutdown_timeout=_SAVE_WITHIN,
        )
        numbers = division.lanes, division.threads, os.getpid(), int(quiet)
        command = ("-m", _WORKER, run, outcome, *numbers)
        try:
            cast(Any, elastic_launch(config, sys.executable))(*command)
        except ChildFailedError as error:
            raise InputError(_sentence(error)) from None
        except SignalException:
            return {"step": list_checkpoints(run)[-1].step, "ended": "interrupted"}
        return json.loads(outcome.read_text(encoding="utf-8"))


def _sentence(error: ChildFailedError) -> str:
    """What to tell of ranks that failed: of a killed one first, others only follow from it."""
    failures = list(error.failures.values())
    killed = [failure.exitcode for failure in failures if failure.exitcode < 0]
    if killed:
        return (
            f"A worker process was ended by signal {-killed[0]}, perhaps for lack of memory: if "
            "so, lower train.workers or set train.recompute = true. The checkpoints are kept; run "
            "the same command to resume."
        )
    said = [failure.message.removeprefix("InputError: ") for failure in failures]
    own = [message for message in said if "Another process of this training" not in message]
    return (own or said)[0]


@contextmanager
def _quiet_launcher() -> Generator[None]:
    """What the launcher logs of a failure is told in one sentence instead."""
    known = [name for name in logging.root.manager.loggerDict if name.startswith(_LAUNCHER)]
    before = {name: logging.getLogger(name).level for name in known}
    for name in known:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
