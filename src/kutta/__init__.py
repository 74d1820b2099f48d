"""Kutta: translation with Transformers whose blocks are steps of an ODE solver."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kutta.config import Config
    from kutta.errors import InputError
    from kutta.ode import TABLEAUX
    from kutta.training.run import Outcome, Step, train
    from kutta.translate import Translator

__all__ = [
    "TABLEAUX",
    "Config",
    "InputError",
    "Outcome",
    "Step",
    "Translator",
    "__version__",
    "train",
]

# Imported on first use, so that neither `import kutta` nor `kutta --help` imports torch.
_MODULES = {
    "Config": "kutta.config",
    "InputError": "kutta.errors",
    "Outcome": "kutta.training.run",
    "Step": "kutta.training.run",
    "TABLEAUX": "kutta.ode",
    "Translator": "kutta.translate",
    "train": "kutta.training.run",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'kutta' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
