"""Settings that depend on the device: resolved when the run starts, and saved in its config.

- `train.pieces`: on a CPU a batch is divided into micro-batches that fit the cache of a core: this
  saves memory and time, and gives each lane its own. As each has whole sentences only, an update
  has slightly fewer tokens than with a single one.
- `train.precision`: "mixed" becomes the 16-bit format that the device supports.
"""

from pathlib import Path
from typing import Any

import torch

from kutta.config import Config
from kutta.errors import InputError
from kutta.runs.checkpoints import list_checkpoints
from kutta.runs.division import Machine, divide
from kutta.runs.run import Run


def choose_device(name: str | torch.device) -> torch.device:
    """The device of this name; "auto" is the first GPU if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"The device {str(name)!r} cannot be used ({reason}); use auto or cpu."
        ) from error
    return device


def resolve(config: Config, device: torch.device) -> Config:
    """The config with all settings resolved; a run that has started keeps its own."""
    config = as_started(config)
    precision = config.train.precision
    return _with_train(
        config,
        pieces=divide(config, device, Machine.here()).per_batch,
        precision=mixed_precision(device) if precision == "mixed" else precision,
    )


def as_started(config: Config) -> Config:
    """The config with what was resolved when its run started, where the config leaves it open."""
    started, asked = started_config(Path(config.run)), config.train
    if started is None:
        return config
    resolved = {
        "pieces": asked.pieces or started.train.pieces,
        "precision": started.train.precision if asked.precision == "mixed" else asked.precision,
    }
    same = config.model_copy(update={"train": asked.model_copy(update=resolved)})
    # Another config is rejected as such when the run is opened, not for pieces it never set.
    other = started.conflict(same, ("data", "model", "train"))
    return same if other else _with_train(config, **resolved)


def started_config(path: Path) -> Config | None:
    """The config of a run that has a checkpoint; None if it has none.

    Runs of earlier versions saved train.pieces in their checkpoints only.
    """
    checkpoints = list_checkpoints(path)
    if not checkpoints or not Run.is_at(path):
        return None
    config = Run.load(path).config
    return _with_train(config, pieces=config.train.pieces or checkpoints[-1].per_batch or 0)


def _with_train(config: Config, **resolved: Any) -> Config:
    """The config with these settings of [train], validated again: they may conflict with others."""
    values = config.model_dump()
    values["train"] |= resolved
    return Config.parse(values, where=config.run)


def mixed_precision(device: torch.device) -> str:
    """The 16-bit precision of a device, or fp32 if it has no fast one."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    has = torch.cpu.get_capabilities()
    return "bf16" if any(has.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16")) else "fp32"
