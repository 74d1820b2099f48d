"""The Transformer as an integrator of y over depth."""

from kutta.model.stack import PLACEMENTS, Stack, StackShape
from kutta.model.transformer import DecoderState, Memory, TranslationModel

__all__ = ["PLACEMENTS", "DecoderState", "Memory", "Stack", "StackShape", "TranslationModel"]
