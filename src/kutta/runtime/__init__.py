"""Exported models, run by onnxruntime: nothing here needs torch."""

from kutta.runtime.directory import Exported, is_exported, open_export

__all__ = ["Exported", "is_exported", "open_export"]
