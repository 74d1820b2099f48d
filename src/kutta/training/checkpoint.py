"""Saving the state of training as a checkpoint, and resuming from it.

Safetensors and JSON, no pickle. Any number of ranks can resume from a checkpoint, with sharded
parameters or without.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from warnings import warn

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from kutta import __version__
from kutta.errors import InputError, Unreadable
from kutta.files import atomic_path, write_json
from kutta.integrity import read_manifest, verify, write_manifest
from kutta.model.weights import fill, own_tensors, read_tensors, write_tensors
from kutta.parsing import DocumentError, read_document
from kutta.runs.checkpoints import WITH_MOMENTS, Checkpoint, list_checkpoints
from kutta.training.loop import Trainer
from kutta.training.parallel.distributed import is_sharded
from kutta.training.parallel.group import SINGLE, LostRank, ProcessGroup
from kutta.training.parallel.shards import cut_like, read_shards, whole_tensors, write_shards
from kutta.training.state import Progress, Scale, State

_MOMENTS = ("exp_avg", "exp_avg_sq")


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
        state = State(
            step=trainer.step,
            position=trainer.position,
            pieces=trainer.per_batch,
            bad_steps=trainer.bad_steps,
            scheduled=scheduled,
            scale=Scale(value=trainer.scale.value, steady=trainer.scale.steady),
            progress=progress,
            versions={"kutta": __version__, "torch": torch.__version__},
        )
        write_json(written.state, state.to_dict())
        write_manifest(folder)
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


Tensors = dict[str, Tensor]


def resume(run: Path, trainer: Trainer) -> Progress | None:
    """Load the newest checkpoint that is intact into the trainer; None if there is none.

    Damaged ones are reported and set aside.
    """
    opened = _newest_intact(run, trainer) if trainer.group.is_main else None
    (step,) = trainer.group.broadcast(opened.checkpoint.step if opened else None)
    if step is None:
        return None
    opened = opened or _open(Checkpoint.at(run, step), trainer)
    tensors, state = opened.tensors, opened.state
    with _damage_reported(opened.checkpoint):
        if not tensors:
            tensors = read_shards(opened.checkpoint.shards, _layout(trainer), trainer.group)
        weights = [name for name in tensors if name.startswith("weight.")]
        found = {name.removeprefix("weight."): tensors.pop(name) for name in weights}
        fill(trainer.model, found, str(opened.checkpoint.path))
        _restore_moments(trainer, tensors)
    trainer.step, trainer.position = state.step, state.position
    trainer.bad_steps = state.bad_steps
    if trainer.scale.dynamic and state.scale is not None:
        trainer.scale = replace(trainer.scale, **state.scale.model_dump())
    return state.progress


@dataclass(frozen=True)
class _Opened:
    """An intact checkpoint; its tensors are empty if they are in shards."""

    checkpoint: Checkpoint
    state: State
    tensors: Tensors


def _newest_intact(run: Path, trainer: Trainer) -> _Opened | None:
    """The newest checkpoint to resume from; those after it are renamed, because they are damaged.

    None if there are no checkpoints. If all are damaged, nothing is renamed.
    """
    checkpoints, damage = list_checkpoints(run), dict[Checkpoint, str]()
    for checkpoint in reversed(checkpoints[-WITH_MOMENTS:]):
        try:
            opened = _open(checkpoint, trainer)
        except Unreadable:
            raise  # it may be intact
        except InputError as error:
            damage[checkpoint] = str(error).removesuffix(".")
            continue
        if not read_manifest(checkpoint.path):
            warn(
                f"{checkpoint.path} was saved by a version without checksums, so it is not checked "
                "for damage; the next checkpoint will be.",
                stacklevel=2,
            )
        for one, why in damage.items():
            aside = one.set_aside()
            warn(
                f"The checkpoint {one.path} is damaged ({why}), so training resumes from step "
                f"{checkpoint.step:,} and computes {one.step - checkpoint.step:,} steps again; the "
                f"damaged one is now {aside.name}, which you may delete.",
                stacklevel=2,
            )
        return opened
    if damage:
        newest = checkpoints[-1]
        raise InputError(
            f"The checkpoint {newest.path} is damaged ({damage[newest]}), and there is no intact "
            f"one to resume from; restore it from a copy, or remove {newest.path.parent} to start "
            "over."
        )
    return None


def _open(checkpoint: Checkpoint, trainer: Trainer) -> _Opened:
    """Read and check a checkpoint on one rank; an InputError says how it is damaged."""
    try:
        sharded, manifest = checkpoint.shards.is_dir(), read_manifest(checkpoint.path)
        needed = {file.name for file in (checkpoint.weights, checkpoint.state)}
        needed |= set[str]() if sharded else {checkpoint.moments.name}
        if manifest and (unknown := needed - manifest.files.keys()):
            raise InputError(f"{min(unknown)} has no checksum")
        verify(checkpoint.path)
        text = read_document(checkpoint.state)
        state = State.parse(text, checkpoint.step, trainer.per_batch, trainer.micro_batches)
        if sharded:
            return _Opened(checkpoint, state, {})
        tensors = _named("weight", read_tensors(checkpoint.weights, verified=True))
        tensors |= read_tensors(checkpoint.moments, verified=True)
    except DocumentError as error:
        raise InputError(f"state.json {error}") from error
    except FileNotFoundError as error:
        raise InputError(f"{error.filename} is missing") from error
    except OSError as error:
        why = error.strerror or error
        raise Unreadable(f"Cannot read {error.filename}: {why}; check its permissions.") from error
    layout = _layout(trainer)
    for name, tensor in tensors.items():
        like = layout.get(name)
        if like is None or (tensor.shape, tensor.dtype) != (like.shape, like.dtype):
            raise InputError(f"the tensor {name} does not fit the model")
    _check_moments(tensors, state.step)
    return _Opened(checkpoint, state, {n: cut_like(t, layout[n]) for n, t in tensors.items()})


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


def _layout(trainer: Trainer) -> Tensors:
    """Tensors like those of a checkpoint, by name: sharded like those of the trainer."""
    own = own_tensors(trainer.model)
    layout = _named("step", dict.fromkeys(own, torch.zeros(())))
    for kind in ("weight", *_MOMENTS):
        layout |= _named(kind, own)
    return layout


def _check_moments(tensors: Tensors, step: int) -> None:
    """Reject moments that Adam cannot have after this many steps."""
    for name, tensor in tensors.items():
        kind = name.partition(".")[0]
        if kind == "exp_avg_sq" and tensor.min() < 0:
            raise InputError(f"the tensor {name} has negative values")
        if kind == "step" and not 0 <= tensor <= step:
            raise InputError(f"the tensor {name} counts more steps than there were")


@contextmanager
def _damage_reported(checkpoint: Checkpoint) -> Generator[None]:
    """Report what only shows when all ranks read a checkpoint."""
    try:
        yield
    except LostRank:
        raise  # rank 0 reports the error
    except (OSError, ValueError, KeyError, TypeError, InputError) as error:
        raise InputError(
            f"The checkpoint {checkpoint.path} is damaged ({str(error) or type(error).__name__}); "
            "remove that folder and run the same command to resume from the one before."
        ) from error


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
