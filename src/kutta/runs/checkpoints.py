"""The checkpoints of a run: listing, metadata, pruning and averaging.

checkpoints/step-00000500/
    model.safetensors       the weights
    optimizer.safetensors   Adam's moments (only the newest two checkpoints keep them)
    shards/                 instead of it, for sharded parameters: weights and moments of each rank
    state.json              step, position in the data, best validation, versions
    checksums.json          of all of them

A checkpoint is `scheduled` if its step is a multiple of save_every. Others are saved on
interruption or for a new best. Only scheduled ones and the last are averaged, so that the final
model does not depend on interruptions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from kutta.config import WEIGHTS
from kutta.errors import InputError
from kutta.files import discard, writing
from kutta.integrity import check, drop
from kutta.model.int8 import KIND
from kutta.model.weights import read_origin, read_tensors, write_tensors
from kutta.parsing import read_json

FOLDER = "checkpoints"
_PREFIX = "step-"
WITH_MOMENTS = 2


def inside(name: str) -> cached_property[Path]:
    """An attribute: the path of this name inside the `path` of its object."""

    def path(owner: Any) -> Path:
        return owner.path / name

    return cached_property(path)


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint of a run."""

    path: Path

    weights = inside(WEIGHTS)
    moments = inside("optimizer.safetensors")
    shards = inside("shards")
    state = inside("state.json")

    @classmethod
    def at(cls, run: Path, step: int) -> "Checkpoint":
        """The checkpoint of a step, whether it exists or not."""
        return cls(run / FOLDER / f"{_PREFIX}{step:08d}")

    @property
    def step(self) -> int:
        """The step at which it was saved."""
        return int(self.path.name.removeprefix(_PREFIX))

    def read_state(self) -> dict[str, Any]:
        """The contents of state.json; empty if it is damaged."""
        try:
            check(self.state)
            state: Any = read_json(self.state)
        except (OSError, ValueError, InputError):
            return {}
        return cast(dict[str, Any], state) if isinstance(state, dict) else {}

    @property
    def best_step(self) -> int:
        """The step of the best validation so far; 0 if there was none."""
        try:
            return int(self.read_state()["progress"]["best_step"])
        except (KeyError, TypeError, ValueError):
            return 0

    @property
    def per_batch(self) -> int | None:
        """Micro-batches per batch (train.pieces); None if the checkpoint is damaged."""
        state = self.read_state()
        count = state.get("pieces", 1) if state else None  # earlier versions did not save it
        return count if isinstance(count, int) and count > 0 else None

    @property
    def scheduled(self) -> bool:
        """Whether it may be averaged; a damaged one counts, so that averaging reports it."""
        return bool(self.read_state().get("scheduled", True))

    def set_aside(self) -> Path:
        """Rename a damaged one, so that it is not listed any more; return its new path."""
        aside = self.path.with_name(f"{self.path.name}.damaged")
        discard(aside)
        with writing(aside):
            return self.path.rename(aside)


def list_checkpoints(run: Path) -> list[Checkpoint]:
    """The complete checkpoints of a run, oldest first."""
    found = (run / FOLDER).glob(f"{_PREFIX}*")
    return [Checkpoint(p) for p in sorted(found) if p.name.removeprefix(_PREFIX).isdecimal()]


def regular_checkpoints(run: Path) -> list[Checkpoint]:
    """The newest checkpoint and the scheduled ones before it, oldest first."""
    checkpoints = list_checkpoints(run)
    return [one for one in checkpoints if one == checkpoints[-1] or one.scheduled]


def prune(run: Path, keep_last: int, best_step: int) -> None:
    """Keep the last `keep_last` regular checkpoints and the best; drop old moments."""
    kept = {*regular_checkpoints(run)[-keep_last:], Checkpoint.at(run, best_step)}
    for one in list_checkpoints(run):
        if one not in kept:
            discard(one.path)
    for one in list_checkpoints(run)[:-WITH_MOMENTS]:
        if one.moments.exists() or one.shards.exists():
            drop(one.path, [one.moments.name, one.shards.name])


def average(checkpoints: Sequence[Checkpoint], out: Path) -> None:
    """Write the mean of the weights of several checkpoints."""
    mean, count = mean_weights(checkpoints), len(checkpoints)
    origin = f"average:{count}" if count > 1 else f"step:{checkpoints[0].step}"
    write_tensors(mean, out, origin)


def mean_weights(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints, computed in double precision."""
    if not checkpoints:
        raise InputError("There is no checkpoint to average; train the model first.")
    files = [one.weights for one in checkpoints]
    first = _read_floats(files[0])
    total = {name: tensor.double() for name, tensor in first.items()}
    for file in files[1:]:
        weights = _read_floats(file)
        if {n: t.shape for n, t in weights.items()} != {n: t.shape for n, t in first.items()}:
            raise InputError(
                f"{file} and {files[0]} have weights of different models, which have no average; "
                "choose checkpoints of one model."
            )
        for name, tensor in weights.items():
            total[name] += tensor.double()
    return {name: (tensor / len(files)).to(first[name].dtype) for name, tensor in total.items()}


def _read_floats(file: Path) -> dict[str, Tensor]:
    """The weights in a file; an average is made of floating-point numbers only."""
    weights = read_tensors(file)
    others = [name for name, tensor in weights.items() if not tensor.is_floating_point()]
    if others or KIND in read_origin(file):
        what = f"the tensor {others[0]} of integers" if others else "weights in 8 bits"
        raise InputError(
            f"{file} has {what}, which cannot be averaged; choose checkpoints as training saved "
            "them."
        )
    return weights
