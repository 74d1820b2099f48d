"""Shallow-to-deep training: a trained model as the start of one that is k times as deep.

A layer is a step of length 1. Copied k times with its increment divided by k it becomes k steps
of length 1/k along the same flow (step halving for k = 2): the deep model begins where the
shallow one ended, only with a smaller truncation error.
"""

import re
from collections.abc import Mapping

from torch import Tensor, nn

from kutta.errors import InputError
from kutta.model.field import Sublayer
from kutta.model.stack import Stack
from kutta.model.weights import own_tensors
from kutta.ode import GAMMAS, METHODS

_IN_LAYER = re.compile(r"(\w+)\.layers\.(\d+)\.(.+)")
# A gate reads the stages; it has to open as before when they are k times smaller.
_GATES = frozenset(name for kind in GAMMAS.values() for name in kind.reads)


def grow(
    tensors: Mapping[str, Tensor], depths: Mapping[str, int], model: nn.Module
) -> dict[str, Tensor]:
    """The tensors of a shallow model as those of `model`, ready for weights.fill.

    `depths` are the shallow model's layers by stack ({"encoder": 6, "decoder": 6}); each stack
    of `model` has a multiple of them, and its layer i takes after layer i // k.
    """
    factors = {
        name: _factor(name, depths.get(name, 0), stack)
        for name, stack in model.named_children()
        if isinstance(stack, Stack)
    }
    # F is linear in the last layers of its sublayers, so dividing them by k divides F.
    outputs = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, Sublayer)
        for parameter in module.get_submodule(module.output).parameters()
    }
    grown: dict[str, Tensor] = {}
    used: set[str] = set()
    for name, tensor in own_tensors(model).items():
        origin, scale = name, 1.0
        if found := _IN_LAYER.fullmatch(name):
            stack, layer, rest = found.groups()
            k = factors[stack]
            origin = f"{stack}.layers.{int(layer) // k}.{rest}"
            gate = name.rpartition(".")[2] in _GATES
            scale = 1 / k if id(tensor) in outputs else k if gate else 1.0
        if origin in tensors:  # fill tells what is missing
            grown[name] = tensors[origin] if scale == 1 else tensors[origin] * scale
            used.add(origin)
    if left := tensors.keys() - used:
        raise InputError(
            f"The model to grow from has the tensor {min(left)}, for which the deep one has no "
            "place; the two may differ in depth only."
        )
    return grown


def _factor(name: str, shallow: int, stack: Stack) -> int:
    """How many steps of the deep stack make one of the shallow stack."""
    shape = stack.shape
    k, rest = divmod(shape.layers, shallow) if shallow else (0, 1)
    for wrong, why in (
        (rest > 0, f"{shape.layers} is not a multiple of {shallow}"),
        (k > 1 and METHODS[shape.method].looks_back, f"{shape.method} looks back over layers"),
        (
            k > 1 and shape.settings.replicate == "release",
            "its dense connections fit one depth only",
        ),
        (k > 1 and shape.settings.norm == "post", "post-norm layers are not steps of an ODE"),
    ):
        if wrong:
            raise InputError(
                f"The {name} cannot grow from {shallow} to {shape.layers} layers: {why}; change "
                f"model.{name}_layers or begin without train.grow_from."
            )
    return k
