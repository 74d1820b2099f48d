"""Training a config from start to end: open its run, share the work, train, write the model."""

import os
import warnings
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from kutta.config import Config
from kutta.data.batches import BatchStream
from kutta.errors import InputError
from kutta.files import write_text
from kutta.runs import (
    Run,
    check_same,
    check_text,
    choose_device,
    locked,
    open_run,
    prepare_run,
    resolve,
)
from kutta.runs.growing import check_shallow
from kutta.training.beginning import begin
from kutta.training.card import direction, method_of
from kutta.training.checkpoint import Progress, resume
from kutta.training.crew import crew, crew_size, idle_gpus, threads_of
from kutta.training.loop import make_trainer
from kutta.training.report import last_validation
from kutta.training.session import Outcome, Session, validation_text
from kutta.training.team import ALONE, job, launched, meet, restarts

__all__ = ["Outcome", "plan_of", "train"]


def train(config: Config, overwrite: bool = False, console: Console | None = None) -> Outcome:
    """Prepare what is missing, train or go on where training stopped, and write the final model.

    Where this process was not launched as one of several, it starts those that share the work.
    """
    settings, path, console = config.train, Path(config.run), console or Console()
    device = _device(settings.device)
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())  # as it was, afterwards
        if settings.threads:
            torch.set_num_threads(settings.threads)
        team = stack.enter_context(meet(device)) if launched() else ALONE
        if team.leads:
            stack.enter_context(locked(path))
            _make_ready(config, overwrite and not _is_restart(path), device, console)
        team.wait()
        run = Run.load(path)
        settings = run.config.train
        torch.manual_seed(settings.seed)
        model = run.build_model()
        workers = crew_size(settings, device)
        others = None
        if not launched() and (idle := idle_gpus(settings, device, workers)):
            console.print(idle, highlight=False, markup=False)
        if not launched() and workers > 1:
            threads = threads_of(settings, workers)
            torch.set_num_threads(threads)
            others = stack.enter_context(crew(path, workers, threads))
        dropout = run.config.data.bpe_dropout
        resample = run.tokenizers.dropout(dropout) if dropout else None
        stream = BatchStream(
            run.train_store(),
            settings.micro_tokens,
            settings.seed,
            resample,
            few_shapes=settings.compile,
        )
        if others is not None:
            others.arrive()
            device = _device(settings.device)  # one of several now
            team = stack.enter_context(meet(device))
            team.wait()  # as they do, above
        plain = deepcopy(model) if settings.shard and team.world > 1 and team.leads else None
        if not run.checkpoints():
            begin(model.to(device), run, stream)
        trainer = make_trainer(model, settings, device, team)
        if trainer.lanes:
            stack.callback(trainer.lanes.close)
        progress = resume(path, trainer) or Progress()
        if progress.by != settings.best:  # a loss and a BLEU do not compare
            progress = Progress(by=settings.best)
        # Read now: text that has moved away should not end a training at its first validation.
        pairs = validation_text(run) if team.leads else []
        session = Session(run, trainer, pairs, progress, plain, last_validation(run))
        return session.go(stream, console)


def _device(name: str) -> torch.device:
    """The device of this process: on GPUs, that of its number on this machine."""
    device = choose_device(name)
    if device.type != "cuda" or not launched():
        return device
    number, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= there:
        raise InputError(
            f"Process {number} of this machine has no GPU of its own, for there are {there}; start "
            "one process for each GPU (train.workers, torchrun's --nproc-per-node)."
        )
    return torch.device("cuda", number)


def _is_restart(path: Path) -> bool:
    """Whether torchrun has started this job before: workers were lost, or machines came and went.

    Restarts are counted by each machine for itself, so one that came later knows of none.
    """
    note = Run.job_file(path)
    return restarts() > 0 or (note.is_file() and note.read_text(encoding="utf-8") == job())


def _make_ready(config: Config, overwrite: bool, device: torch.device, console: Console) -> None:
    """Open the run, decide what the device decides, and prepare its text."""
    if device.type == "cpu" and config.train.precision == "fp16":
        warnings.warn(
            "fp16 is meant for GPUs and many times slower than fp32 on a CPU; "
            "set train.precision = 'fp32' here",
            stacklevel=3,
        )
    opened = open_run(config, overwrite)
    run = replace(opened, config=resolve(opened.config, device))
    run.write_config()
    report = prepare_run(run)
    if report is not None:
        console.print(str(report), highlight=False, markup=False)
    if job():
        write_text(Run.job_file(run.path), job())


def plan_of(config: Config) -> str:
    """What training this config would do, in words; checks that the text is there."""
    data, model, run = config.data, config.model, Run(Path(config.run), config)
    check_text(data, [data.train, data.valid, *data.test])
    done = run.checkpoints()
    check_same(config)
    device = choose_device(config.train.device)
    settings = resolve(config, device).train
    pieces = settings.pieces
    if not done:
        check_shallow(config)
    beginning = f"resume from step {done[-1].step}" if done else "start"
    return "\n".join(
        [
            f"run      {run.path} ({beginning}; config {config.hash()})",
            f"data     {data.dir}: {data.train}, {data.valid}; {direction(config)}"
            + ("; prepared" if run.is_prepared else "; to be prepared"),
            f"method   {method_of(model)}",
            f"train    {settings.max_steps:,} steps of {settings.accumulate} x "
            f"{settings.batch_tokens:,} tokens{f' in {pieces} pieces' if pieces > 1 else ''}, "
            f"seed {settings.seed}, {settings.precision} on {device}",
            f"save     every {settings.save_every:,} steps, the last {settings.keep_last} kept",
        ]
    )
