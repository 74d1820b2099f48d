"""Translation with a trained model: search over ids, and the translator around it."""

from kutta.config import Sampling
from kutta.runs import choose_device
from kutta.translate.hypothesis import Hypothesis
from kutta.translate.sampling import sample
from kutta.translate.scorer import Ensemble, SingleModel
from kutta.translate.search import beam_search
from kutta.translate.translator import Translator

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
