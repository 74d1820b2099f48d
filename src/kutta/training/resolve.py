"""What the device decides of a run: decided when the run is begun, written into its config.

- `train.pieces`: on a CPU a batch is computed in parts small enough for the cache of a core. A
  piece is a micro-batch of its own, filled and sorted like any other: less memory, less time, and
  one for every lane. As it holds whole sentences, an update has slightly fewer tokens than without.
- `train.precision`: "mixed" is the 16-bit arithmetic that the device has.
"""

from pathlib import Path
from typing import Any

import torch

from kutta.config import Config
from kutta.training.checkpoint import list_checkpoints, pieces_of

_STATES = 1 << 18  # tokens x d_model of a piece: 1 MiB of fp32 for each tensor of states
_FEW, _MANY = 512, 1024  # tokens: fewer make products slow, more leave lanes without work


def resolve(config: Config, device: torch.device) -> Config:
    """The config with everything decided; a run that has begun keeps what it was begun with."""
    config = as_begun(config)
    decided: dict[str, Any] = {"pieces": config.train.pieces or piece_count(config, device)}
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


def begun_config(run: Path) -> Config | None:
    """The config of a run that has a checkpoint; None where it has none.

    Runs of earlier versions have the number of their pieces in their checkpoints only.
    """
    checkpoints = list_checkpoints(run)
    if not checkpoints or not (run / "config.json").is_file():
        return None
    config = Config.load(run / "config.json")
    return _with_train(config, {"pieces": config.train.pieces or pieces_of(checkpoints[-1]) or 0})


def _with_train(config: Config, decided: dict[str, Any]) -> Config:
    return config.model_copy(update={"train": config.train.model_copy(update=decided)})


def piece_count(config: Config, device: torch.device) -> int:
    """How many pieces a batch is cut into on this device: a power of two."""
    settings = config.train
    if device.type != "cpu" or settings.compile:  # a GPU has room, compiled code has few shapes
        return 1
    best = min(max(_FEW, _STATES // config.model.d_model), _MANY)
    least = max(best, config.data.max_length + 1)
    return 1 << max(0, (settings.batch_tokens // least).bit_length() - 1)


def mixed_precision(device: torch.device) -> str:
    """The 16-bit arithmetic of a device, or fp32 where it has none that is fast."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    has = torch.cpu.get_capabilities()
    return "bf16" if any(has.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16")) else "fp32"
