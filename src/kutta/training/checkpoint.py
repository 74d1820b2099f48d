"""Saving the state of training as a checkpoint, and resuming from it.

Safetensors and JSON, no pickle. Any number of ranks can resume from a checkpoint, with sharded
parameters or without.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from kutta import __version__
from kutta.parsing import read_json
from kutta.errors import InputError
from kutta.files import atomic_path, write_json
from kutta.model.weights import fill, own_tensors, read_tensors, write_tensors
from kutta.runs.checkpoints import Checkpoint, list_checkpoints
from kutta.training.loop import Trainer
from kutta.training.parallel.distributed import is_sharded
from kutta.training.parallel.group import SINGLE, LostRank, ProcessGroup
from kutta.training.parallel.shards import cut_like, read_shards, whole_tensors, write_shards

_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class Progress:
    """The best validation so far, for early stopping and the best checkpoint."""

    best: float | None = None
    best_step: int = 0
    since_best: int = 0
    by: str = "loss"


def save_checkpoint(
    run: Path, trainer: Trainer, progress: Progress, scheduled: bool = True
) -> Checkpoint:
    """Write the checkpoint of this step atomically."""
    checkpoint, sharded = Checkpoint.at(run, trainer.step), is_sharded(trainer.module)
    group = trainer.group if sharded else SINGLE  # otherwise only rank 0 writes
    if not (trainer.group.is_main or sharded):
        return checkpoint
    with _folder(checkpoint.path, group) as folder:
        written = Checkpoint(folder)
        if sharded:
            weights = _named("weight", own_tensors(trainer.model))
            write_shards(weights | _moments(trainer), written.shards, group)
        else:
            write_tensors(_moments(trainer), written.moments)
        weights = whole_tensors(trainer.model, keep=group.is_main)
        if not group.is_main:
            return checkpoint
        write_tensors(weights, written.weights)
        state = {
            "step": trainer.step,
            "position": trainer.position,
            "pieces": trainer.per_batch,
            "bad_steps": trainer.bad_steps,
            "scheduled": scheduled,
            "scale": {"value": trainer.scale.value, "steady": trainer.scale.steady},
            "progress": asdict(progress),
            "versions": {"kutta": __version__, "torch": torch.__version__},
        }
        write_json(written.state, state)
    return checkpoint


@contextmanager
def _folder(path: Path, group: ProcessGroup) -> Generator[Path]:
    """A new folder for all ranks, which rank 0 renames to `path` when it is complete.

    Only its name is sent, because other machines may have it mounted elsewhere.
    """
    if not group.is_main:
        yield path.with_name(*group.broadcast(""))
        return
    with atomic_path(path) as folder:
        folder.mkdir()
        group.broadcast(folder.name)
        yield folder


def resume(run: Path, trainer: Trainer) -> Progress | None:
    """Load the newest checkpoint into the trainer; None if there is none."""
    checkpoints = list_checkpoints(run)
    (newest,) = trainer.group.broadcast(checkpoints[-1].step if checkpoints else None)
    if newest is None:
        return None
    checkpoint = Checkpoint.at(run, newest)
    try:
        state: dict[str, Any] = read_json(checkpoint.state)
        tensors = _read(trainer, checkpoint)
        weights = [name for name in tensors if name.startswith("weight.")]
        found = {name.removeprefix("weight."): tensors.pop(name) for name in weights}
        fill(trainer.model, found, str(checkpoint.path))
        _restore_moments(trainer, tensors)
        trainer.step, trainer.position = state["step"], state["position"]
        trainer.bad_steps = state["bad_steps"]
        if trainer.scale.dynamic and "scale" in state:
            trainer.scale = replace(trainer.scale, **state["scale"])
        return Progress(**state["progress"])
    except LostRank:
        raise  # rank 0 reports the error
    except (OSError, ValueError, KeyError, TypeError, InputError) as error:
        before = checkpoints[-2].path.name if len(checkpoints) > 1 else "the start"
        raise InputError(
            f"The checkpoint {checkpoint.path} is damaged ({str(error) or type(error).__name__}); "
            f"remove that folder and run the same command to resume from {before}."
        ) from error


Tensors = dict[str, Tensor]


def _moments(trainer: Trainer) -> Tensors:
    """Adam's state by parameter name: step, exp_avg, exp_avg_sq."""
    return {
        f"{key}.{name}": value.contiguous()
        for name, entries in _optimizer_state(trainer)["state"].items()
        for key, value in entries.items()
    }


def _optimizer_state(trainer: Trainer) -> dict[str, Any]:
    return cast(dict[str, Any], get_optimizer_state_dict(trainer.model, trainer.optimizer))


def _named(kind: str, tensors: Mapping[str, Tensor]) -> Tensors:
    return {f"{kind}.{name}": tensor.detach() for name, tensor in tensors.items()}


def _read(trainer: Trainer, checkpoint: Checkpoint) -> Tensors:
    """Weights and moments of a checkpoint, sharded like those of the trainer."""
    own = own_tensors(trainer.model)
    layout = _named("step", dict.fromkeys(own, torch.zeros(())))
    for kind in ("weight", *_MOMENTS):
        layout |= _named(kind, own)
    if checkpoint.shards.is_dir():
        return read_shards(checkpoint.shards, layout, trainer.group)
    tensors = _named("weight", read_tensors(checkpoint.weights))
    tensors |= read_tensors(checkpoint.moments)
    return {n: cut_like(t, layout[n]) if n in layout else t for n, t in tensors.items()}


def _restore_moments(trainer: Trainer, left: Tensors) -> None:
    """Restore Adam's state; a parameter without saved moments starts from zero moments."""
    state: dict[str, Tensors] = {}
    for name, parameter in trainer.model.named_parameters():
        zeros = {"step": torch.zeros(())} | {k: torch.zeros_like(parameter) for k in _MOMENTS}
        saved = f"step.{name}" in left
        state[name] = {k: left.pop(f"{k}.{name}") for k in zeros} if saved else zeros
        if any(state[name][key].shape != parameter.shape for key in _MOMENTS):
            raise InputError(f"the moments of {name} have the wrong shape")
    if left:
        raise InputError(f"there are moments of {min(left)}, which is not in the model")
    whole = _optimizer_state(trainer) | {"state": state}
    set_optimizer_state_dict(trainer.model, trainer.optimizer, cast(Any, whole))
