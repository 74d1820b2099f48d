"""Starting the ranks of one machine with torch's launcher, and reporting their outcome."""

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

_LAUNCHER = "torch.distributed.elastic"  # the prefix of its loggers
_WORKER = "kutta.training.parallel.worker"
_SAVE_WITHIN = 600  # seconds for a rank to finish its update and save after a signal


def launch(run: Path, division: Division, quiet: bool = False) -> dict[str, Any]:
    """Train a prepared run with the ranks of a division; return the last step and the outcome.

    On an interruption the ranks save and stop.
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
            raise InputError(_message(error)) from None
        except SignalException:
            return {"step": list_checkpoints(run)[-1].step, "ended": "interrupted"}
        return json.loads(outcome.read_text(encoding="utf-8"))


def _message(error: ChildFailedError) -> str:
    """The message for failed ranks: a killed one first, because others fail as a consequence."""
    failures = list(error.failures.values())
    killed = [failure.exitcode for failure in failures if failure.exitcode < 0]
    if killed:
        return (
            f"A worker process was killed by signal {-killed[0]}, perhaps for lack of memory: if "
            "so, lower train.workers or set train.recompute = true. The checkpoints are kept; run "
            "the same command to resume."
        )
    messages = [failure.message.removeprefix("InputError: ") for failure in failures]
    causes = [message for message in messages if "Another rank of this" not in message]
    return (causes or messages)[0]


@contextmanager
def _quiet_launcher() -> Generator[None]:
    """Silence the launcher's log, because failures are reported in one sentence."""
    known = [name for name in logging.root.manager.loggerDict if name.startswith(_LAUNCHER)]
    before = {name: logging.getLogger(name).level for name in known}
    for name in known:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
