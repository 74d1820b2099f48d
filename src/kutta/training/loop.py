"""The training loop: an iterator that yields a Step after each update.

All randomness in an update is seeded by (seed, number of the micro-batch), so a resumed run draws
exactly what an uninterrupted run would have drawn, and so do the ranks and lanes that share an
update.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from kutta.config import TrainConfig
from kutta.data.batches import Batch, BatchStream
from kutta.errors import InputError
from kutta.model import TextModel
from kutta.model.stack import Layer
from kutta.training.compilation import compile_layers
from kutta.training.memory import keep_freed_memory, no_more_than_there_is, out_of_memory
from kutta.training.objective import token_loss
from kutta.training.parallel.distributed import (
    finish_gradients,
    norm_of,
    parameter_groups,
    spread,
    syncing,
)
from kutta.training.parallel.group import SINGLE, ProcessGroup
from kutta.training.parallel.lanes import Lane, Lanes
from kutta.training.precision import LossScale, autocast
from kutta.training.schedule import learning_rate
from kutta.training.validate import Validation


@dataclass(frozen=True)
class Step:
    """The result of one update, for the log, the progress bar and `train(on_step=...)`."""

    number: int  # of the update, from 1
    epoch: int  # from 0
    loss: float  # per target token, with label smoothing
    nll: float  # per target token, without
    lr: float
    grad_norm: float  # before clipping
    tokens: int  # target tokens, without padding
    skipped: bool  # whether the loss or a gradient was not finite
    seconds: float = 0.0
    validation: Validation | None = None  # where one was due after this update

    @property
    def perplexity(self) -> float:
        """exp(nll)."""
        return math.exp(min(self.nll, 50.0))

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)


@dataclass
class Trainer:
    """The state of training: model, optimizer and position.

    `step` counts updates, `position` the micro-batches taken from the stream, `bad_steps` the
    consecutive updates that were skipped because the loss or a gradient was not finite.
    """

    model: TextModel
    optimizer: torch.optim.Adam
    scale: LossScale
    device: torch.device
    group: ProcessGroup
    module: nn.Module  # the model, or its wrapper for the process group
    lanes: Lanes | None = None
    per_batch: int = 1  # micro-batches per batch (train.pieces)
    micro_batches: int = 1  # of an update
    step: int = 0
    position: int = 0
    bad_steps: int = 0

    @property
    def at_once(self) -> int:
        """The number of micro-batches that this process computes in parallel."""
        return len(self.lanes) if self.lanes else 1


def make_trainer(
    model: TextModel,
    config: TrainConfig,
    device: torch.device,
    group: ProcessGroup = SINGLE,
    lanes: int = 1,
) -> Trainer:
    """A trainer at step 0; several lanes need a single process on a CPU."""
    torch.set_float32_matmul_precision("high" if config.precision == "tf32" else "highest")
    model.to(device)
    if device.type == "cpu":
        keep_freed_memory()
    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.recompute = config.recompute
    if config.compile:
        compile_layers(model)
    module = spread(model, group, device, config.shard)
    optimizer = torch.optim.Adam(
        parameter_groups(model),
        lr=config.lr,
        betas=config.adam_betas,
        eps=config.adam_eps,
        fused=True,
    )
    in_parallel = Lanes(model, lanes, torch.get_num_threads()) if lanes > 1 else None
    scale, per_batch = LossScale.of(config), max(1, config.pieces)
    return Trainer(
        model, optimizer, scale, device, group, module, in_parallel, per_batch, config.micro_batches
    )


def try_largest_batch(trainer: Trainer, stream: BatchStream, config: TrainConfig) -> None:
    """Try the largest batch, so that memory runs out at the start or not at all."""
    trainer.model.train()
    with (
        out_of_memory(config, trainer.device, trainer.at_once, trainer.step > 0),
        no_more_than_there_is(trainer.device, trainer.group.local_world_size),
    ):
        # Allocate Adam's state now; later it would fragment the memory freed by batches.
        for parameter in trainer.model.parameters():
            if parameter not in trainer.optimizer.state:
                trainer.optimizer.state[parameter] = {
                    "step": torch.zeros((), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        _accumulate(trainer, dict.fromkeys(range(trainer.at_once), stream.largest()), 1.0, config)
    trainer.optimizer.zero_grad(set_to_none=True)


def fit(trainer: Trainer, stream: BatchStream, config: TrainConfig) -> Iterator[Step]:
    """Update the model until max_steps, yielding a Step after each update."""
    while trainer.step < config.max_steps:
        with out_of_memory(config, trainer.device, trainer.at_once, trainer.step > 0):
            step = _update(trainer, stream, config)
        yield step


def _update(trainer: Trainer, stream: BatchStream, config: TrainConfig) -> Step:
    """One optimizer step over some micro-batches; the loss is a mean over all their tokens."""
    started = time.perf_counter()
    group, optimizer, scale = trainer.group, trainer.optimizer, trainer.scale
    trainer.model.train()
    rate = learning_rate(trainer.step + 1, config)
    for parameters in optimizer.param_groups:
        parameters["lr"] = rate
    last = trainer.position + config.micro_batches
    mine = group.share(range(trainer.position, last))
    batches = {number: stream.take(number) for number in mine}
    (tokens,) = group.sum(sum(batch.tokens for batch in batches.values()))
    # Gradients are averaged over the process group, but should be summed.
    losses = _accumulate(trainer, batches, scale.value / (tokens / group.world_size), config)
    finish_gradients(trainer.module)
    norm = _clip(trainer, config)
    smoothed, nll = (float(sum(numbers)) for numbers in zip(*losses, strict=True))
    sum_smoothed, sum_nll = group.sum(smoothed, nll)
    finite = math.isfinite(sum_smoothed) and math.isfinite(norm)
    if finite:
        optimizer.step()
    scale.update(finite)
    optimizer.zero_grad(set_to_none=True)
    epoch, _ = stream.epoch_of(trainer.position)
    trainer.step, trainer.position = trainer.step + 1, last
    trainer.bad_steps = 0 if finite else trainer.bad_steps + 1
    if trainer.bad_steps >= config.max_bad_steps:
        raise InputError(
            f"The loss was not finite for {trainer.bad_steps} consecutive steps (up to step "
            f"{trainer.step}); the last checkpoint is kept. Start a new run with a lower "
            "train.lr, a longer train.warmup or train.clip_norm = 1.0."
        )
    return Step(
        number=trainer.step,
        epoch=epoch,
        loss=sum_smoothed / tokens,
        nll=sum_nll / tokens,
        lr=rate,
        grad_norm=norm,
        tokens=int(tokens),
        skipped=not finite,
        seconds=time.perf_counter() - started,
    )


def _accumulate(
    trainer: Trainer, batches: dict[int, Batch], factor: float, config: TrainConfig
) -> list[tuple[Tensor, Tensor]]:
    """Add up the gradients of factor * loss over numbered micro-batches.

    Returns their losses, `smoothed` and `nll`.
    """
    *_, last = batches

    def backward(module: nn.Module, model: TextModel, number: int) -> tuple[Tensor, Tensor]:
        batch = batches[number].to(trainer.device)
        with autocast(trainer.device, config):
            hidden = module(batch.source, batch.target_in)
            weight, smoothing = model.output_weight, config.label_smoothing
            loss = token_loss(hidden, weight, batch.target_out, model.pad, smoothing)
        (factor * loss.smoothed).backward()
        return loss.smoothed.detach(), loss.nll

    def sequentially(number: int) -> tuple[Tensor, Tensor]:
        torch.manual_seed(_seed(config.seed, number))
        with syncing(trainer.module, last=number == last):
            return backward(trainer.module, trainer.model, number)

    def in_lane(lane: Lane, number: int) -> tuple[Tensor, Tensor]:
        lane.generator.manual_seed(_seed(config.seed, number))
        return backward(lane.model, lane.model, number)

    if trainer.lanes:
        return trainer.lanes.run(list(batches), in_lane)
    return [sequentially(number) for number in batches]


def _clip(trainer: Trainer, config: TrainConfig) -> float:
    """Unscale the gradients and clip them; return their norm before clipping."""
    gradients = [p.grad for p in trainer.model.parameters() if p.grad is not None]
    trainer.scale.remove_from(gradients)
    norm = norm_of(gradients)
    if 0 < config.clip_norm < norm < math.inf:
        for gradient in gradients:
            gradient.mul_(config.clip_norm / (norm + 1e-6))
    return norm


def _seed(seed: int, position: int) -> int:
    """A well-mixed seed for micro-batch `position`."""
    return int(np.random.SeedSequence([seed, position]).generate_state(1, np.uint64)[0] >> 1)
