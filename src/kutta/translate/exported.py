"""Scoring continuations with an exported model."""

from functools import cached_property
from typing import TYPE_CHECKING

from kutta.errors import InputError
from kutta.runtime.directory import Exported
from kutta.translate.native import NativeModel, obstacle
from kutta.translate.scorer import Decoding

if TYPE_CHECKING:
    from kutta.translate.graphs import GraphModel


class ExportedModel:
    """The log-probabilities of an exported model.

    The kernels in C compute them, where they know the model and this CPU can run them, and else
    onnxruntime.
    """

    def __init__(self, exported: Exported) -> None:
        self.exported = exported

    @property
    def vocabulary(self) -> int:
        return self.exported.facts.vocabulary

    @cached_property
    def engine(self) -> "NativeModel | GraphModel":
        if not obstacle(self.exported.path):
            return NativeModel(self.exported)
        from kutta.translate.graphs import GraphModel  # onnxruntime takes time and memory

        return GraphModel(self.exported)

    def open(self, threads: int) -> None:
        """Read the weights, and have this many threads for a product, if that is possible."""
        self.engine.open(threads)

    def start(self, beam: int) -> Decoding:
        return self.engine.start(beam)


def on_cpu(device: object) -> bool:
    """Whether a device is, or may be, the CPU."""
    return str(device) in ("auto", "cpu")


def check_device(device: object) -> None:
    """Reject a device that an exported model cannot use."""
    if not on_cpu(device):
        raise InputError(
            f"An exported model runs on the CPU, not on {device}; use --device cpu, or the run."
        )
