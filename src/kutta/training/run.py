"""Training a config: open its run, divide the work, launch the ranks, train, write the model."""

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
from kutta.runs.division import Division, Machine, divide, idle_gpus
from kutta.runs.growing import check_shallow
from kutta.training.beginning import begin
from kutta.training.card import direction, method_of
from kutta.training.checkpoint import Progress, resume
from kutta.training.loop import make_trainer
from kutta.training.parallel.group import (
    SINGLE,
    ProcessGroup,
    is_launched,
    job,
    join,
    restarts,
)
from kutta.training.parallel.launch import launch
from kutta.training.report import last_validation
from kutta.training.session import Outcome, Session, validation_text

__all__ = ["Outcome", "dry_run_summary", "local_device", "train", "work"]


def train(config: Config, overwrite: bool = False, console: Console | None = None) -> Outcome:
    """Prepare the data if needed, train or resume, and write the final model.

    Unless a launcher has started this process as a rank, it launches the ranks itself.
    """
    console, path = console or Console(), Path(config.run)
    device, machine = local_device(config.train.device), Machine.here()
    if is_launched():
        return _train_as_rank(config, overwrite, console, device, machine)
    with locked(path):
        run = _open(config, overwrite, device, console)
        division = divide(run.config, device, machine)
        if idle := idle_gpus(division, run.config, device, machine):
            console.print(idle, highlight=False, markup=False)
        if division.processes == 1:
            return work(run, division, SINGLE, device, console)
        ended = launch(path, division, console.quiet)
        return Outcome(path, **ended, validation=last_validation(run))


def _train_as_rank(
    config: Config, overwrite: bool, console: Console, device: torch.device, machine: Machine
) -> Outcome:
    """Train as a rank started by torchrun; rank 0 opens the run."""
    path = Path(config.run)
    with ExitStack() as stack:
        group = stack.enter_context(join(device))
        if group.is_main:
            stack.enter_context(locked(path))
            _open(config, overwrite and not _is_restart(path), device, console)
        group.barrier()
        run = Run.load(path)
        division = divide(run.config, device, machine, group.world_size)
        own = config.train.threads or machine.threads  # torchrun has set the number
        return work(run, replace(division, threads=own), group, device, console)


def work(
    run: Run, division: Division, group: ProcessGroup, device: torch.device, console: Console
) -> Outcome:
    """Train a prepared run to its end, as one rank of the process group."""
    settings, data = run.config.train, run.config.data
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())  # restored afterwards
        torch.set_num_threads(division.threads)
        torch.manual_seed(settings.seed)
        model = run.build_model()
        resample = run.tokenizers.dropout(data.bpe_dropout) if data.bpe_dropout else None
        stream = BatchStream(
            run.train_store(),
            settings.micro_tokens,
            settings.seed,
            resample,
            few_shapes=settings.compile,
        )
        split = settings.shard and group.world_size > 1
        whole = deepcopy(model) if split and group.is_main else None
        if not run.checkpoints():
            begin(model.to(device), run, stream)
        trainer = make_trainer(model, settings, device, group, division.lanes)
        if trainer.lanes:
            stack.callback(trainer.lanes.close)
        progress = resume(run.path, trainer) or Progress()
        if progress.by != settings.best:  # a loss cannot be compared with a BLEU
            progress = Progress(by=settings.best)
        # Read it now: missing text should not end training at the first validation.
        pairs = validation_text(run) if group.is_main else []
        session = Session(run, trainer, pairs, progress, whole, last_validation(run))
        return session.run_to_end(stream, console)


def local_device(name: str) -> torch.device:
    """The device of this process: with GPUs, that of its local rank."""
    device = choose_device(name)
    if device.type != "cuda" or not is_launched():
        return device
    number, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= there:
        raise InputError(
            f"There is no GPU for local rank {number}: this machine has {there}; start one process "
            "per GPU (train.workers, or torchrun's --nproc-per-node)."
        )
    return torch.device("cuda", number)


def _is_restart(path: Path) -> bool:
    """Whether torchrun has restarted this job: workers were lost, or nodes joined or left.

    Each node counts its own restarts, so one that joined later has counted none.
    """
    file = Run.job_file(path)
    return restarts() > 0 or (file.is_file() and file.read_text(encoding="utf-8") == job())


def _open(config: Config, overwrite: bool, device: torch.device, console: Console) -> Run:
    """Open the run, resolve its config for the device, and prepare its text."""
    if device.type == "cpu" and config.train.precision == "fp16":
        warnings.warn(
            "fp16 is meant for GPUs and much slower than fp32 on a CPU; "
            "set train.precision = 'fp32'",
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
    return run


def dry_run_summary(config: Config) -> str:
    """What training this config would do; checks the config and that the text exists."""
    data, model, run = config.data, config.model, Run(Path(config.run), config)
    check_text(data, [data.train, data.valid, *data.test])
    done = run.checkpoints()
    check_same(config)
    device = choose_device(config.train.device)
    settings = resolve(config, device).train
    parts = f" in {settings.pieces} micro-batches" if settings.pieces > 1 else ""
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
            f"{settings.batch_tokens:,} tokens{parts}, "
            f"seed {settings.seed}, {settings.precision} on {device}",
            f"save     every {settings.save_every:,} steps, the last {settings.keep_last} kept",
        ]
    )
