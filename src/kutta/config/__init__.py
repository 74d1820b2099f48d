"""Typed and validated settings: read from TOML, saved as JSON in each run. Imports no torch."""

from kutta.config.config import CONFIG, WEIGHTS, Config, from_earlier, known_keys
from kutta.config.data import DataConfig
from kutta.config.decode import DecodeConfig, Sampling, SearchOptions
from kutta.config.model import ModelConfig
from kutta.config.section import Section
from kutta.config.train import TrainConfig

__all__ = [
    "CONFIG",
    "WEIGHTS",
    "Config",
    "DataConfig",
    "DecodeConfig",
    "ModelConfig",
    "Sampling",
    "SearchOptions",
    "Section",
    "TrainConfig",
    "from_earlier",
    "known_keys",
]
