"""Exported models, run by kernels in C or by onnxruntime: nothing here needs torch."""

from kutta.runtime.directory import (
    Exported,
    find_exported,
    is_exported,
    open_export,
)

__all__ = ["Exported", "find_exported", "is_exported", "open_export"]
