"""The Transformer as an integrator of y over depth."""

from kutta.model.decoding import DecoderState, TextModel
from kutta.model.language import LanguageModel
from kutta.model.stack import PLACEMENTS, Stack, StackShape
from kutta.model.transformer import Memory, TranslationModel

__all__ = [
    "PLACEMENTS",
    "DecoderState",
    "LanguageModel",
    "Memory",
    "Stack",
    "StackShape",
    "TextModel",
    "TranslationModel",
]
