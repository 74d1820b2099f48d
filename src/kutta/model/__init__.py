"""The Transformer as an integrator of y over depth."""

from kutta.model.decoding import DecoderState, TextModel
from kutta.model.shape import PLACEMENTS, StackShape
from kutta.model.stack import Stack
from kutta.model.transformer import LanguageModel, TranslationModel

__all__ = [
    "PLACEMENTS",
    "DecoderState",
    "LanguageModel",
    "Stack",
    "StackShape",
    "TextModel",
    "TranslationModel",
]
