"""Trained models in the formats of other programs."""

from kutta.export.ctranslate2 import QUANTIZATIONS, export_ctranslate2

__all__ = ["QUANTIZATIONS", "export_ctranslate2"]
