"""Training a config: open its run, divide the work, launch the ranks, train, write the model."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Never
from warnings import warn

import torch
from rich.console import Console

from kutta.config import Config, known_keys
from kutta.config.mistakes import check_names
from kutta.config.signature import spelled_out
from kutta.data.batches import BatchStream
from kutta.errors import InputError
from kutta.runs import Run, check_same, check_text, choose_device, locked, resolve
from kutta.runs.division import Division, Machine, divide, idle_gpus
from kutta.runs.growing import check_shallow
from kutta.runs.opening import at_least_reached
from kutta.runs.overwriting import finish_replacement, replacement_of
from kutta.training.beginning import begin
from kutta.training.card import direction, method_of
from kutta.training.checkpoint import resume
from kutta.training.final import final_model_of
from kutta.training.loop import Step, make_trainer
from kutta.training.memory import check_model_fits
from kutta.training.opening import beside, open_to_train, replaces
from kutta.training.parallel.group import SINGLE, ProcessGroup, is_launched, join
from kutta.training.parallel.launch import launch
from kutta.training.report import NullReporter, Reporter, recorded_validation
from kutta.training.session import OnStep, Outcome, Session
from kutta.training.state import Progress

__all__ = ["Outcome", "Step", "dry_run_summary", "local_device", "train", "work"]


@spelled_out({})
def train(
    config: Config,
    overwrite: bool = False,
    console: Console | None = None,
    on_step: OnStep | None = None,
    **unknown: Never,
) -> Outcome:
    """Prepare the data if needed, train or resume, and write the final model.

    A run that has finished is not touched. With `overwrite` a new run is trained beside it, which
    takes its place when it has finished. Unless a launcher has started this process as a rank, it
    launches the ranks itself.

    `on_step` is called with a `Step` after each update, in this process and on rank 0: number,
    epoch, loss, perplexity, lr, grad_norm, tokens, tokens_per_second, and the validation if one was
    due. If it raises an exception, training saves and stops as on Ctrl-C, and the exception is
    raised here.
    """
    _check_arguments(config, overwrite, on_step, unknown)
    console, path, launched = console or Console(), Path(config.run), is_launched()
    device, machine = local_device(config.train.device), Machine.here()
    with ExitStack() as stack:
        group = stack.enter_context(join(device)) if launched else SINGLE
        done: dict[str, Any] | None = None
        replacing = False
        if group.is_main:
            stack.enter_context(locked(path))
            if replacing := overwrite and replaces(path):
                config = beside(config, device, console)
                stack.enter_context(locked(Path(config.run)))
            done = open_to_train(config, device, console)
        ((done, replacing),) = group.broadcast((done, replacing))
        run = Run.load(replacement_of(path) if replacing else path)
        outcome = _train(run, done, group, launched, device, machine, console, on_step)
        if replacing and outcome.ended != "interrupted":
            if group.is_main:
                finish_replacement(path)
            return replace(outcome, run=path)
        return outcome


def _train(
    run: Run,
    done: dict[str, Any] | None,
    group: ProcessGroup,
    launched: bool,
    device: torch.device,
    machine: Machine,
    console: Console,
    on_step: OnStep | None,
) -> Outcome:
    """Train an open run here or in processes that this one launches, unless it is done."""
    if done is not None:
        return Outcome(run.path, done["step"], done["ended"], recorded_validation(run))
    division = divide(run.config, device, machine, group.world_size if launched else 0)
    if not launched and (idle := idle_gpus(division, run.config, device, machine)):
        console.print(idle, highlight=False, markup=False)
    if group.is_main and run.config.train.shard and division.processes == 1:
        warn("train.shard = true has no effect: there is one process.", stacklevel=3)
    check_model_fits(run, device, division.processes)
    if launched or division.processes == 1:
        return work(run, division, group, device, console, on_step)
    if on_step is not None:
        raise InputError(
            f"on_step cannot be called from the {division.processes} processes that train "
            "would start; set train.workers = 1, or start this program with torchrun."
        )
    ended = launch(run.path, division.processes, console.quiet)
    return Outcome(run.path, **ended, validation=recorded_validation(run))


def _check_arguments(
    config: object, overwrite: object, on_step: object, unknown: Mapping[str, object]
) -> None:
    """Reject arguments of the wrong type, and settings that belong into the config."""
    if not isinstance(config, Config):
        raise InputError(f"train needs a Config, such as Config.load({str(config)!r}).")
    for name in unknown:
        keys = [key for key in known_keys() if name == key.rpartition(".")[2]]
        if keys:
            raise InputError(
                f"train has no option {name}, which is a setting; give it to the config, e.g. "
                f'Config.load(..., ["{keys[-1]}={unknown[name]}"]).'
            )
        check_names([name], ("overwrite", "console", "on_step"))
    if not isinstance(overwrite, bool):
        raise InputError(f"overwrite = {overwrite!r} is not valid: it must be True or False.")
    if not (on_step is None or callable(on_step)):
        raise InputError(f"on_step = {on_step!r} is not valid: it must be a function of a Step.")


def work(
    run: Run,
    division: Division,
    group: ProcessGroup,
    device: torch.device,
    console: Console,
    on_step: OnStep | None = None,
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
            progress = Progress(by=settings.best, window=progress.window)
        # Read it now: missing text should not end training at the first validation.
        translates = settings.valid_bleu and not run.config.language_model
        pairs = run.texts.valid() if translates and group.is_main else []
        latest = recorded_validation(run)
        window = progress.window
        reporter = Reporter(run, trainer.step, console, window) if group.is_main else NullReporter()
        session = Session(run, trainer, reporter, progress, pairs, whole, latest, on_step)
        return session.run_to_end(stream)


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


def dry_run_summary(config: Config) -> str:
    """What training this config would do; checks the config and that the text exists."""
    data, model, run = config.data, config.model, Run(Path(config.run), config)
    check_text(data, [data.train, data.valid, *data.test])
    config = at_least_reached(config)
    done = run.checkpoints()
    check_same(config)
    device = choose_device(config.train.device)
    settings = resolve(config, device).train
    parts = f" in {settings.pieces} micro-batches" if settings.pieces > 1 else ""
    if not done:
        check_shallow(config)
    beginning = f"resume from step {done[-1].step}" if done else "start"
    if done and final_model_of(Run(run.path, resolve(config, device))):
        beginning = f"already finished at step {done[-1].step}"
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
