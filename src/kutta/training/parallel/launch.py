"""Starting the ranks of one machine with torch's launcher, and reporting their outcome."""

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
from kutta.parsing import read_json
from kutta.runs.checkpoints import list_checkpoints

_LAUNCHER = "torch.distributed.elastic"  # the prefix of its loggers
_WORKER = "kutta.training.parallel.worker"
_SAVE_WITHIN = 600  # seconds for a rank to finish its update and save after a signal


def launch(run: Path, processes: int, quiet: bool = False) -> dict[str, Any]:
    """Train a prepared run with this many ranks; return the last step and the outcome.

    On an interruption the ranks save and stop.
    """
    with tempfile.TemporaryDirectory(prefix="kutta-") as folder, _quiet_launcher():
        outcome = Path(folder) / "outcome.json"
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            local_addr="127.0.0.1",
            logs_specs=DefaultLogsSpecs(log_dir=folder),
            shutdown_timeout=_SAVE_WITHIN,
        )
        command = ("-m", _WORKER, run, outcome, os.getpid(), int(quiet))
        try:
            cast(Any, elastic_launch(config, sys.executable))(*command)
        except ChildFailedError as error:
            raise InputError(_message(error)) from None
        except SignalException:
            return {"step": list_checkpoints(run)[-1].step, "ended": "interrupted"}
        return read_json(outcome)


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
    enabled = [logger for logger in map(logging.getLogger, known) if not logger.disabled]
    for logger in enabled:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in enabled:
            logger.disabled = False
