"""The sections of a config: every setting with its type, its default and what it means."""

from kutta.settings.data import DataConfig
from kutta.settings.decode import DecodeConfig
from kutta.settings.model import Gamma, ModelConfig, TableauConfig
from kutta.settings.section import Section
from kutta.settings.train import TrainConfig

__all__ = [
    "DataConfig",
    "DecodeConfig",
    "Gamma",
    "ModelConfig",
    "Section",
    "TableauConfig",
    "TrainConfig",
]
