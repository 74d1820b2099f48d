"""What the device decides of a run: decided when the run is begun, written into its config.

- `train.pieces`: on a CPU a batch is cut into micro-batches small enough for the cache of a core:
  less memory, less time, and one for every lane. As each holds whole sentences, an update has
  slightly fewer tokens than without.
- `train.precision`: "mixed" is the 16-bit arithmetic that the device has.
"""

from pathlib import Path
from typing import Any

import torch

from kutta.config import Config
from kutta.errors import InputError
from kutta.runs.division import Machine, divide
from kutta.runs.run import Run


def choose_device(name: str | torch.device) -> torch.device:
    """The device of this name; "auto" is the first GPU where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"The device {str(name)!r} cannot be used ({reason}); take auto or cpu."
        ) from error
    return device


def resolve(config: Config, device: torch.device) -> Config:
    """The config with everything decided; a run that has begun keeps what it was begun with."""
    config = as_begun(config)
    decided: dict[str, Any] = {"pieces": divide(config, device, Machine.here()).pieces}
    if config.train.precision == "mixed":
        decided["precision"] = mixed_precision(device)
    return _with_train(config, decided)


def as_begun(config: Config) -> Config:
    """The config with what its run decided when it was begun, where the config leaves it open."""
    begun, settings = begun_config(Path(config.run)), config.train
    if begun is None:
        return config
    decided: dict[str, Any] = {"pieces": settings.pieces or begun.train.pieces}
    if settings.precision == "mixed":
        decided["precision"] = begun.train.precision
    return _with_train(config, decided)


def begun_config(path: Path) -> Config | None:
    """The config of a run that has a checkpoint; None where it has none.

    Runs of earlier versions have the number of their pieces in their checkpoints only.
    """
    if not Run.is_at(path):
        return None
    run = Run.load(path)
    checkpoints = run.checkpoints()
    if not checkpoints:
        return None
    pieces = run.config.train.pieces or checkpoints[-1].pieces or 0
    return _with_train(run.config, {"pieces": pieces})


def _with_train(config: Config, decided: dict[str, Any]) -> Config:
    """The config with these settings of [train], checked again: they may not fit the others."""
    values = config.model_dump()
    values["train"] |= decided
    return Config.parse(values, where=config.run)


def mixed_precision(device: torch.device) -> str:
    """The 16-bit arithmetic of a device, or fp32 where it has none that is fast."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    has = torch.cpu.get_capabilities()
    return "bf16" if any(has.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16")) else "fp32"
