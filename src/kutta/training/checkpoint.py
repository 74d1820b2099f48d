"""Checkpoints: saved atomically, resumed exactly, averaged. Safetensors and JSON, no pickle.

checkpoints/step-00000500/
    model.safetensors       the weights
    optimizer.safetensors   Adam's moments (only the newest two checkpoints keep them)
    state.json              step, position in the data, best validation, versions

A checkpoint is `scheduled` where its step is a multiple of save_every. Others come from an
interruption or a new best; only scheduled ones and the last are averaged, so that the final model
does not depend on whether and when a run was interrupted.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kutta import __version__
from kutta.errors import InputError
from kutta.files import atomic_path, remove, write_json
from kutta.model.weights import load_weights, read_tensors, save_weights, write_tensors
from kutta.training.loop import Trainer

FOLDER = "checkpoints"
_WITH_OPTIMIZER = 2


@dataclass
class Progress:
    """What a run remembers of its validations, for early stopping and the best checkpoint."""

    best: float | None = None
    best_step: int = 0
    since_best: int = 0
    by: str = "loss"


def save_checkpoint(
    run: Path, trainer: Trainer, progress: Progress, scheduled: bool = True
) -> Path:
    """Write the checkpoint of this step in one piece; return its folder."""
    path = run / FOLDER / f"step-{trainer.step:08d}"
    with atomic_path(path) as folder:
        folder.mkdir()
        save_weights(trainer.model, folder / "model.safetensors")
        write_tensors(_optimizer_tensors(trainer), folder / "optimizer.safetensors")
        state = {
            "step": trainer.step,
            "position": trainer.position,
            "bad_steps": trainer.bad_steps,
            "scheduled": scheduled,
            "scaler": trainer.scaler.state_dict(),
            "progress": asdict(progress),
            "versions": {"kutta": __version__, "torch": torch.__version__},
        }
        write_json(folder / "state.json", state)
    return path


def list_checkpoints(run: Path) -> list[Path]:
    """The finished checkpoints of a run, oldest first."""
    return sorted(p for p in (run / FOLDER).glob("step-*") if p.name[5:].isdecimal())


def step_of(checkpoint: Path) -> int:
    """The step at which a checkpoint was saved."""
    return int(checkpoint.name.removeprefix("step-"))


def best_step(checkpoint: Path) -> int:
    """The step of the best validation up to this checkpoint; 0 where none was made."""
    try:
        return int(json.loads((checkpoint / "state.json").read_text())["progress"]["best_step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def regular_checkpoints(run: Path) -> list[Path]:
    """The newest checkpoint and the scheduled ones before it, oldest first."""
    checkpoints = list_checkpoints(run)
    return [path for path in checkpoints if path == checkpoints[-1] or _scheduled(path)]


def _scheduled(path: Path) -> bool:
    try:
        return bool(json.loads((path / "state.json").read_text())["scheduled"])
    except (OSError, ValueError, KeyError, TypeError):
        return True  # damaged, or of an earlier version: not ours to remove


def resume(run: Path, trainer: Trainer) -> Progress | None:
    """Bring the trainer to the newest checkpoint; None where there is none."""
    checkpoints = list_checkpoints(run)
    if not checkpoints:
        return None
    path = checkpoints[-1]
    try:
        state: dict[str, Any] = json.loads((path / "state.json").read_text())
        tensors = read_tensors(path / "optimizer.safetensors")
        load_weights(trainer.model, path / "model.safetensors")
        _restore_optimizer(trainer, tensors)
        trainer.step, trainer.position = state["step"], state["position"]
        trainer.bad_steps = state["bad_steps"]
        if state["scaler"]:
            trainer.scaler.load_state_dict(state["scaler"])
        return Progress(**state["progress"])
    except (OSError, ValueError, KeyError, TypeError, InputError) as error:
        before = f"from {checkpoints[-2].name}" if len(checkpoints) > 1 else "from the beginning"
        raise InputError(
            f"The checkpoint {path} is damaged ({str(error) or type(error).__name__}); "
            f"remove that folder and run the same command to go on {before}."
        ) from error


def prune(run: Path, keep_last: int, best_step: int) -> None:
    """Keep the last `keep_last` regular checkpoints and the best; drop old moments."""
    kept = {*regular_checkpoints(run)[-keep_last:], run / FOLDER / f"step-{best_step:08d}"}
    for path in list_checkpoints(run):
        if path not in kept:
            # Its name goes first, so that a half-removed checkpoint is never taken for a whole one.
            remove(path.rename(path.with_name(f".{path.name}.tmp")))
    for path in list_checkpoints(run)[:-_WITH_OPTIMIZER]:
        remove(path / "optimizer.safetensors")


def average(paths: Sequence[Path], out: Path) -> None:
    """The mean of the weights of several checkpoints, in double precision, as one file."""
    if not paths:
        raise InputError("There is no checkpoint to average; train the model first.")
    files = [path / "model.safetensors" if path.is_dir() else path for path in paths]
    first = read_tensors(files[0])
    total = {name: tensor.double() for name, tensor in first.items()}
    for file in files[1:]:
        weights = read_tensors(file)
        if {n: t.shape for n, t in weights.items()} != {n: t.shape for n, t in first.items()}:
            raise InputError(f"{file} and {files[0]} are weights of different models.")
        for name, tensor in weights.items():
            total[name] += tensor.double()
    mean = {name: (tensor / len(files)).to(first[name].dtype) for name, tensor in total.items()}
    write_tensors(mean, out, origin=f"average:{len(files)}")


def _optimizer_tensors(trainer: Trainer) -> dict[str, Tensor]:
    """Adam's state by parameter name: step, exp_avg, exp_avg_sq."""
    state = trainer.optimizer.state
    return {
        f"{key}.{name}": value.contiguous()
        for name, parameter in trainer.model.named_parameters()
        for key, value in state.get(parameter, {}).items()
    }


def _restore_optimizer(trainer: Trainer, tensors: dict[str, Tensor]) -> None:
    """Put Adam's state back; a parameter that has not been updated yet has none."""
    left = dict(tensors)
    for name, parameter in trainer.model.named_parameters():
        if f"step.{name}" not in left:
            continue
        state = {key: left.pop(f"{key}.{name}") for key in ("step", "exp_avg", "exp_avg_sq")}
        if not state["exp_avg"].shape == state["exp_avg_sq"].shape == parameter.shape:
            raise InputError(f"the moments of {name} have another shape")
        trainer.optimizer.state[parameter] = {k: v.to(parameter.device) for k, v in state.items()}
    if left:
        raise InputError(f"there are moments of {min(left)}, which the model does not have")
