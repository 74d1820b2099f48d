"""Kutta: translation with Transformers whose blocks are steps of an ODE solver."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kutta.config import Config
    from kutta.errors import InputError
    from kutta.ode import TABLEAUX
    from kutta.training.run import train
    from kutta.translate import Translator

__all__ = ["TABLEAUX", "Config", "InputError", "Translator", "__version__", "train"]

# Imported on first use, so that `kutta --help` does not import torch.
_MODULES = {
    "Config": "kutta.config",
    "InputError": "kutta.errors",
    "TABLEAUX": "kutta.ode",
    "Translator": "kutta.translate",
    "train": "kutta.training.run",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'kutta' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
