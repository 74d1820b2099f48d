"""Translation with a trained model: search over ids, and the translator around it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kutta.config import Sampling
from kutta.translate.hypothesis import Hypothesis
from kutta.translate.sampling import sample
from kutta.translate.scorer import Ensemble
from kutta.translate.search import beam_search
from kutta.translate.translator import Translator

if TYPE_CHECKING:
    from kutta.runs import choose_device
    from kutta.translate.pytorch import SingleModel

__all__ = [
    "Ensemble",
    "Hypothesis",
    "Sampling",
    "SingleModel",
    "Translator",
    "beam_search",
    "choose_device",
    "sample",
]

_WITH_TORCH = {"SingleModel": "kutta.translate.pytorch", "choose_device": "kutta.runs"}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'kutta.translate' has no attribute {name!r}")
    return getattr(import_module(_WITH_TORCH[name]), name)
