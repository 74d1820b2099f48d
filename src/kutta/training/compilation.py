"""Compiling what a layer does: once for all layers of a kind and each shape of a batch."""

import torch
from torch import nn
from torch._dynamo import config as dynamo

from kutta.errors import InputError
from kutta.model.stack import Layer

_LIMIT = 1000  # compilations of one function, after which torch no longer compiles


def compile_layers(model: nn.Module, device: torch.device) -> None:
    """Let the layers of a model run compiled in training; parameters keep their names."""
    _check_compiler(device)
    dynamo.recompile_limit = dynamo.accumulated_recompile_limit = _LIMIT
    dynamo.optimize_ddp = False  # it cuts graphs at buckets of gradients; a layer is small enough
    # Shapes are few and each has code of its own: what an update computes then depends on its
    # batches alone, not on those compiled before, and a resumed run computes the same.
    integrate = torch.compile(Layer.integrate, dynamic=False)
    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.compiled = integrate


def _check_compiler(device: torch.device) -> None:
    """Compile something small, to find out in one sentence whether that is possible here."""
    try:
        torch.compile(torch.sin)(torch.zeros(2, device=device))
    except RuntimeError as error:
        raise InputError(
            f"train.compile = true does not work on this machine ({str(error).splitlines()[0]}); "
            "install a C++ compiler (g++), or set train.compile = false."
        ) from error
