"""The training loop: an iterator that makes one update and yields what happened.

Everything random in an update follows from (seed, number of the micro-batch), so a run that goes
on from a checkpoint draws exactly what an uninterrupted run would have drawn.
"""

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from kutta.config import TrainConfig
from kutta.data.batches import Batch, BatchStream
from kutta.errors import InputError
from kutta.model import TextModel
from kutta.training.memory import keep_freed_memory
from kutta.training.objective import token_loss
from kutta.training.schedule import learning_rate

_PRECISION = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Step:
    """One update, as the log, the progress bar and the figures see it."""

    number: int
    epoch: int
    loss: float
    nll: float
    lr: float
    grad_norm: float
    tokens: int
    skipped: bool
    seconds: float = 0.0

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nll, 50.0))


@dataclass
class Trainer:
    """What training changes: the model, the optimizer, and how far it has come.

    `step` counts updates, `position` the micro-batches taken from the stream, `bad_steps` the
    updates in a row that were skipped because the loss or a gradient was not finite.
    """

    model: TextModel
    optimizer: torch.optim.Adam
    scaler: torch.amp.GradScaler
    device: torch.device
    step: int = 0
    position: int = 0
    bad_steps: int = 0


def make_trainer(model: TextModel, config: TrainConfig, device: torch.device) -> Trainer:
    """A trainer at step 0 (Adam; a loss scale for fp16)."""
    model.to(device)
    if device.type == "cpu":
        keep_freed_memory()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=config.lr, betas=config.adam_betas, eps=config.adam_eps, fused=True
    )
    scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "fp16")
    return Trainer(model, optimizer, scaler, device)


def fit(trainer: Trainer, stream: BatchStream, config: TrainConfig) -> Iterator[Step]:
    """Update the model until max_steps, yielding a Step after each update."""
    while trainer.step < config.max_steps:
        started = time.perf_counter()
        batches = [stream.take(trainer.position + i) for i in range(config.accumulate)]
        epoch, _ = stream.epoch_of(trainer.position)
        step = _update(trainer, batches, config, epoch)
        yield replace(step, seconds=time.perf_counter() - started)


def _update(trainer: Trainer, batches: list[Batch], config: TrainConfig, epoch: int) -> Step:
    """One optimizer step over some micro-batches; the loss is the mean over all their tokens."""
    model, optimizer, scaler = trainer.model, trainer.optimizer, trainer.scaler
    model.train()
    rate = learning_rate(trainer.step + 1, config)
    for group in optimizer.param_groups:
        group["lr"] = rate
    tokens = sum(batch.tokens for batch in batches)
    smoothed = torch.zeros((), device=trainer.device)
    nll = torch.zeros((), device=trainer.device)
    for offset, batch in enumerate(batches):
        torch.manual_seed(_seed(config.seed, trainer.position + offset))
        batch = batch.to(trainer.device)
        with autocast(trainer.device, config):
            hidden = model(batch.source, batch.target_in)
            loss = token_loss(
                hidden, model.output_weight, batch.target_out, model.pad, config.label_smoothing
            )
        scaler.scale(loss.smoothed / tokens).backward()
        smoothed += loss.smoothed.detach()
        nll += loss.nll
    scaler.unscale_(optimizer)
    limit = config.clip_norm or math.inf
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), limit))
    finite = math.isfinite(float(smoothed)) and math.isfinite(norm)
    if finite:
        scaler.step(optimizer)
    scaler.update()  # after a skipped step too: it lowers the scale of fp16
    optimizer.zero_grad(set_to_none=True)
    trainer.step += 1
    trainer.position += len(batches)
    trainer.bad_steps = 0 if finite else trainer.bad_steps + 1
    if trainer.bad_steps >= config.max_bad_steps:
        raise InputError(
            f"The loss was not finite for {trainer.bad_steps} steps in a row (up to step "
            f"{trainer.step}); the last checkpoint is kept. Begin another run with a lower "
            "train.lr, a longer train.warmup or train.clip_norm = 1.0."
        )
    return Step(
        number=trainer.step,
        epoch=epoch,
        loss=float(smoothed) / tokens,
        nll=float(nll) / tokens,
        lr=rate,
        grad_norm=norm,
        tokens=tokens,
        skipped=not finite,
    )


def autocast(device: torch.device, config: TrainConfig) -> AbstractContextManager[object]:
    """The arithmetic of the forward pass."""
    if config.precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, _PRECISION[config.precision])


def _seed(seed: int, position: int) -> int:
    """A well-mixed seed for micro-batch `position`."""
    return int(np.random.SeedSequence([seed, position]).generate_state(1, np.uint64)[0] >> 1)
