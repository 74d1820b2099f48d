"""Exporting a trained model for onnxruntime."""

from kutta.export.export import export_run

__all__ = ["export_run"]
