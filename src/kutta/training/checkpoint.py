"""Checkpoints: saved atomically, resumed exactly, averaged. Safetensors and JSON, no pickle.

checkpoints/step-00000500/
    model.safetensors       the weights
    optimizer.safetensors   Adam's moments (only the newest two checkpoints keep them)
    shards/                 instead of it, where parameters are split over processes: the parts of
                            each, weights and moments
    state.json              step, position in the data, best validation, versions

Either kind is gone on from by any number of processes, whether they split parameters or not.

A checkpoint is `scheduled` where its step is a multiple of save_every. Others come from an
interruption or a new best; only scheduled ones and the last are averaged, so that the final model
does not depend on whether and when a run was interrupted.
"""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from kutta import __version__
from kutta.errors import InputError
from kutta.files import atomic_path, remove, write_json
from kutta.model.weights import fill, own_tensors, read_tensors, write_tensors
from kutta.training.distributed import is_sharded
from kutta.training.loop import Trainer
from kutta.training.shards import cut_like, read_shards, whole_tensors, write_shards
from kutta.training.team import Lost, Team

FOLDER, SHARDS = "checkpoints", "shards"
_MOMENTS = ("exp_avg", "exp_avg_sq")
_WITH_MOMENTS = 2


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
    path, team = run / FOLDER / f"step-{trainer.step:08d}", trainer.team
    sharded = is_sharded(trainer.module)
    if not (team.leads or sharded):
        return path
    with _one_folder(path, team) if sharded else _folder(path) as folder:
        if sharded:
            write_shards(_parts(trainer), folder / SHARDS, team)
        else:
            write_tensors(_moments(trainer), folder / "optimizer.safetensors")
        weights = whole_tensors(trainer.model, keep=team.leads)
        if not team.leads:
            return path
        write_tensors(weights, folder / "model.safetensors")
        state = {
            "step": trainer.step,
            "position": trainer.position,
            "pieces": trainer.pieces,
            "bad_steps": trainer.bad_steps,
            "scheduled": scheduled,
            "scale": {"value": trainer.scale.value, "steady": trainer.scale.steady},
            "progress": asdict(progress),
            "versions": {"kutta": __version__, "torch": torch.__version__},
        }
        write_json(folder / "state.json", state)
    return path


@contextmanager
def _folder(path: Path) -> Generator[Path]:
    """A folder that takes its name when it is complete."""
    with atomic_path(path) as folder:
        folder.mkdir()
        yield folder


@contextmanager
def _one_folder(path: Path, team: Team) -> Generator[Path]:
    """The same for all processes of a team, on whose machines it may be mounted elsewhere."""
    if not team.leads:
        yield path.with_name(team.same(""))
        return
    with _folder(path) as folder:
        team.same(folder.name)
        yield folder


def list_checkpoints(run: Path) -> list[Path]:
    """The finished checkpoints of a run, oldest first."""
    return sorted(p for p in (run / FOLDER).glob("step-*") if p.name[5:].isdecimal())


def step_of(checkpoint: Path) -> int:
    """The step at which a checkpoint was saved."""
    return int(checkpoint.name.removeprefix("step-"))


def best_step(checkpoint: Path) -> int:
    """The step of the best validation up to this checkpoint; 0 where none was made."""
    try:
        return int(_readable_state(checkpoint)["progress"]["best_step"])
    except (KeyError, TypeError, ValueError):
        return 0


def pieces_of(checkpoint: Path) -> int | None:
    """In how many pieces a batch was computed; None where the checkpoint is damaged."""
    state = _readable_state(checkpoint)
    pieces = state.get("pieces", 1) if state else None  # an earlier version cut none
    return pieces if isinstance(pieces, int) and pieces > 0 else None


def regular_checkpoints(run: Path) -> list[Path]:
    """The newest checkpoint and the scheduled ones before it, oldest first."""
    checkpoints = list_checkpoints(run)
    # One that is damaged or of an earlier version is not ours to remove.
    return [
        path
        for path in checkpoints
        if path == checkpoints[-1] or _readable_state(path).get("scheduled", True)
    ]


def _readable_state(checkpoint: Path) -> dict[str, Any]:
    """What a checkpoint says of itself; nothing where it is damaged."""
    try:
        state = json.loads((checkpoint / "state.json").read_text())
    except (OSError, ValueError):
        return {}
    return cast(dict[str, Any], state) if isinstance(state, dict) else {}


def resume(run: Path, trainer: Trainer) -> Progress | None:
    """Bring the trainer to the newest checkpoint; None where there is none."""
    checkpoints = list_checkpoints(run)
    newest = trainer.team.same(checkpoints[-1].name if checkpoints else "")
    if not newest:
        return None
    path = run / FOLDER / newest
    try:
        state: dict[str, Any] = json.loads((path / "state.json").read_text())
        weights, moments = _read(trainer, path)
        fill(trainer.model, weights, str(path))
        _restore_moments(trainer, moments)
        trainer.step, trainer.position = state["step"], state["position"]
        trainer.bad_steps = state["bad_steps"]
        if trainer.scale.dynamic and "scale" in state:
            trainer.scale = replace(trainer.scale, **state["scale"])
        return Progress(**state["progress"])
    except Lost:
        raise  # the leader says what is wrong
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
    for path in list_checkpoints(run)[:-_WITH_MOMENTS]:
        remove(path / "optimizer.safetensors")
        remove(path / SHARDS)


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
    origin = f"average:{len(files)}"
    if len(files) == 1 and paths[0].is_dir():
        origin = f"step:{step_of(paths[0])}"
    write_tensors(mean, out, origin)


Tensors = dict[str, Tensor]


def _moments(trainer: Trainer) -> Tensors:
    """Adam's state by parameter name: step, exp_avg, exp_avg_sq."""
    state = trainer.optimizer.state
    return {
        f"{key}.{name}": value.contiguous()
        for name, parameter in trainer.model.named_parameters()
        for key, value in state.get(parameter, {}).items()
    }


def _parts(trainer: Trainer) -> Tensors:
    """Weights and moments, as this process has them."""
    weights = own_tensors(trainer.model)
    return {f"weight.{name}": t.detach() for name, t in weights.items()} | _moments(trainer)


def _read(trainer: Trainer, path: Path) -> tuple[Tensors, Tensors]:
    """Weights and moments of a checkpoint, split as those of the trainer are."""
    own = {name: tensor.detach() for name, tensor in own_tensors(trainer.model).items()}
    layout = {f"{kind}.{name}": t for kind in ("weight", *_MOMENTS) for name, t in own.items()}
    layout |= {f"step.{name}": torch.zeros(()) for name in own}
    if (path / SHARDS).is_dir():
        tensors = read_shards(path / SHARDS, layout, trainer.team)
    else:
        weights = read_tensors(path / "model.safetensors")
        tensors = {f"weight.{name}": tensor for name, tensor in weights.items()}
        tensors |= read_tensors(path / "optimizer.safetensors")
        tensors = {n: cut_like(t, layout[n]) if n in layout else t for n, t in tensors.items()}
    weights = {n[7:]: t for n, t in tensors.items() if n.startswith("weight.")}
    return weights, {n: t for n, t in tensors.items() if not n.startswith("weight.")}


def _restore_moments(trainer: Trainer, tensors: Tensors) -> None:
    """Put Adam's state back; a parameter of which there is none begins anew."""
    left = dict(tensors)
    for name, parameter in trainer.model.named_parameters():
        if f"step.{name}" not in left:
            continue
        state = {key: left.pop(f"{key}.{name}") for key in ("step", *_MOMENTS)}
        if not state["exp_avg"].shape == state["exp_avg_sq"].shape == parameter.shape:
            raise InputError(f"the moments of {name} have another shape")
        trainer.optimizer.state[parameter] = {k: v.to(parameter.device) for k, v in state.items()}
    if left:
        raise InputError(f"there are moments of {min(left)}, which the model does not have")
