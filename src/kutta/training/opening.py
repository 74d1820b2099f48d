"""Opening a run to train it: resume, start, or make one that replaces it."""

import os
from pathlib import Path
from typing import Any
from warnings import warn

import torch
from rich.console import Console

from kutta.config import Config
from kutta.config.warnings import warnings_about
from kutta.files import write_text
from kutta.runs import Run, check_same, open_run, prepare_run, resolve
from kutta.runs.device import as_started, started_config
from kutta.runs.division import Machine, divide
from kutta.runs.growing import check_shallow
from kutta.runs.opening import at_least_reached
from kutta.runs.overwriting import begin_replacement, is_being_replaced
from kutta.runs.run import JOB
from kutta.training.final import final_model_of
from kutta.training.parallel.group import job


def _is_restart(path: Path) -> bool:
    """Whether torchrun has restarted this job: workers were lost, or nodes joined or left.

    Each node counts its own restarts, so one that joined later has counted none.
    """
    file, restarts = path / JOB, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return restarts > 0 or (file.is_file() and file.read_text(encoding="utf-8") == job())


def replaces(path: Path) -> bool:
    """Whether overwriting means to train a run beside this one; a restart does so only once."""
    return is_being_replaced(path) or (Run.is_at(path) and not _is_restart(path))


def beside(config: Config, device: torch.device, console: Console) -> Config:
    """The config of the run that replaces the one of this config."""
    check_shallow(config)
    divide(config, device, Machine.here())  # one that does not work is found before any writing
    new = begin_replacement(config)
    _say(console, f"training in {new.run}, which replaces {config.run} when it has finished")
    return new


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def open_to_train(config: Config, device: torch.device, console: Console) -> dict[str, Any] | None:
    """Open the run, resolve its config for the device, and prepare its text.

    If it has finished, nothing is prepared, and the result is the record of its final model.
    """
    asked, config = config, at_least_reached(config)
    check_same(config)
    if config.train.max_steps > asked.train.max_steps:
        _say(
            console,
            f"train.max_steps = {asked.train.max_steps:,} is below step {config.train.max_steps:,},"
            " which this run has reached: training ends there",
        )
    if (done := _finished(config, device)) is not None:
        _say(console, _already(config, done))
        return done
    for sentence in warnings_about(config):
        warn(sentence, stacklevel=3)
    if device.type == "cpu" and config.train.precision == "fp16":
        warn(
            "fp16 is meant for GPUs and much slower than fp32 on a CPU; "
            "set train.precision = 'fp32'",
            stacklevel=3,
        )
    # A division that does not work is found before anything is written.
    divide(as_started(config), device, Machine.here())
    run = open_run(config)
    run = Run(run.path, resolve(run.config, device))
    run.write_config()
    report = prepare_run(run)
    if report is not None:
        _say(console, str(report))
    if job():
        write_text(run.path / JOB, job())
    return None


def _finished(config: Config, device: torch.device) -> dict[str, Any] | None:
    """The record of the final model if there is nothing left to do; None if there is.

    Settings that change nothing in the final model are saved if they differ.
    """
    path = Path(config.run)
    if (started := started_config(path)) is None:
        return None
    run = Run(path, resolve(config, device))
    done = final_model_of(run)
    if done is not None and run.config != started.model_copy(update={"run": config.run}):
        run.write_config()
    return done


def _already(config: Config, done: dict[str, Any]) -> str:
    """That a run has ended, and how it could be trained further."""
    way_on = "raise train.max_steps to train further"
    if done["ended"] == "early stop":
        count = config.train.patience
        way_on = f"train.patience = {count} validations had no new best; raise it to train further"
    return (
        f"{config.run} has already finished at step {done['step']:,} (final model: "
        f"{done['weights']}); {way_on}"
    )
