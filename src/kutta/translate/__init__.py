"""Translation with a trained model: search over ids, and the translator around it."""

from kutta.config import Sampling
from kutta.translate.search import beam_search
from kutta.translate.translator import Translator

__all__ = ["Sampling", "Translator", "beam_search"]
