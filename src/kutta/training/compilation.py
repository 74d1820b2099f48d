"""Compiling layers: once for all layers of a kind and each shape of a batch."""

from typing import Any

import torch
from torch import Tensor, nn

from kutta.errors import InputError
from kutta.model.stack import Layer
from kutta.ode.solver import History

_LIMIT = 1000  # compilations before torch falls back to eager mode; its default is 8


def compile_layers(model: nn.Module) -> None:
    """Compile the layers of a model for training; its parameters keep their names."""
    # Imported here, because they take a second to load.
    from torch._dynamo import config
    from torch._dynamo.exc import TorchDynamoException

    config.recompile_limit = config.accumulated_recompile_limit = _LIMIT
    config.optimize_ddp = False  # it would split large layers to exchange gradients earlier
    # Static shapes: there are few, and an update then depends only on its own batches and not on
    # earlier ones, so that a resumed run computes the same.
    compiled = torch.compile(Layer.integrate, dynamic=False)

    def integrate(*inputs: Any) -> tuple[Tensor, History]:
        try:
            return compiled(*inputs)
        except TorchDynamoException as error:
            reason = str(error).strip().splitlines()
            raise InputError(
                "The layers cannot be compiled on this machine "
                f"({next((line for line in reason if 'backend=' not in line), 'unknown')}); "
                "set train.compile = false, or install a C++ compiler such as g++."
            ) from error

    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.compiled = integrate
