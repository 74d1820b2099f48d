"""Pieces: on a CPU a batch is computed in parts small enough for the cache of a core.

A piece is a micro-batch of its own, filled and sorted like any other: less memory, less time, and
one for every lane. As it holds whole sentences, an update has slightly fewer tokens than without.
"""

from pathlib import Path

import torch

from kutta.config import Config, TrainConfig
from kutta.training.checkpoint import list_checkpoints, pieces_of

_STATES = 1 << 18  # tokens x d_model of a piece: 1 MiB of fp32 for each tensor of states
_FEW, _MANY = 512, 1024  # tokens: fewer make products slow, more leave lanes without work


def settle_pieces(config: Config, device: torch.device) -> TrainConfig:
    """Its settings of training with the number of pieces decided.

    A run keeps the number it was begun with, on whatever device it goes on: batches are counted
    in pieces.
    """
    begun = list_checkpoints(Path(config.run))
    count = (pieces_of(begun[-1]) if begun else None) or piece_count(config, device)
    return config.train.model_copy(update={"pieces": count})


def piece_count(config: Config, device: torch.device) -> int:
    """How many pieces a batch is cut into on this device: as asked, else a power of two."""
    settings = config.train
    if settings.pieces:
        return settings.pieces
    if device.type != "cpu" or settings.compile:  # a GPU has room, compiled code has few shapes
        return 1
    best = min(max(_FEW, _STATES // config.model.d_model), _MANY)
    least = max(best, config.data.max_length + 1)
    return 1 << max(0, (settings.batch_tokens // least).bit_length() - 1)
