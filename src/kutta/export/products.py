"""Products with the weights of a model in a graph: in fp32, or in 8 bits."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from torch import Tensor

from kutta.export.trace import MICROSOFT, Tracer
from kutta.model.int8 import SMALL, rows_in_8_bits


class Fp32:
    """Products as torch computes them."""

    kept: ClassVar[torch.dtype] = torch.float32  # the type of keys and values between steps

    def linear(self, graph: Tracer, x: str, weight: Tensor, bias: Tensor | None) -> str:
        name = graph.parameter(weight)
        product = graph.node("MatMul", [x, graph.constant(_numbers(weight).T, f"{name}.T")])
        return product if bias is None else graph.node("Add", [product, graph.name(bias)])

    def listed(self, graph: Tracer, x: str, width: int) -> tuple[str, str]:
        weights = _column_input(graph, "weights", TensorProto.FLOAT, width)
        return graph.node("MatMul", [x, weights]), _column_input(graph, "bias")

    def stored(self, weight: Tensor) -> dict[str, NDArray[Any]]:
        """The output layer of a shortlist, as `Shortlist` in kutta.runtime has it."""
        return {"weights": _numbers(weight)}

    def rows(self, graph: Tracer, table: Tensor, ids: str) -> str:
        return graph.node("Gather", [graph.name(table), ids])


class Int8(Fp32):
    """Weights in 8 bits with a scale for each output, activations with one for each row.

        x[r, :] ~ s[r] / 127 (u[r, :] - 128),  u of 1 to 255,  s[r] = max |x[r, :]|
        x[r, :] ~ s[r] / 255 u[r, :],          u of 0 to 255,  behind a ReLU

    So a row does not depend on the other rows of a batch. A row of zeros has s = 0 and whatever
    codes. Small matrices (gates, positions) stay in fp32. Keys and values are kept in 16 bits:
    reading them takes a quarter of a step with a beam.
    """

    kept: ClassVar[torch.dtype] = torch.float16

    def __init__(self) -> None:
        self._known: dict[str, _Units] = {}  # what is in 8 bits already, by name

    def linear(self, graph: Tracer, x: str, weight: Tensor, bias: Tensor | None) -> str:
        if weight.numel() < SMALL:
            return super().linear(graph, x, weight, bias)
        codes, scales, name = *self._codes(weight), graph.parameter(weight)
        matrix = graph.constant(codes.T, f"{name}.T:codes")
        product = self._product(graph, x, matrix, graph.constant(scales, f"{name}:scale"))
        return product if bias is None else graph.node("Add", [product, graph.name(bias)])

    def listed(self, graph: Tracer, x: str, width: int) -> tuple[str, str]:
        codes = _column_input(graph, "weights", TensorProto.INT8, width)
        scales = _column_input(graph, "scales")
        return self._product(graph, x, codes, scales), _column_input(graph, "bias")

    def stored(self, weight: Tensor) -> dict[str, NDArray[Any]]:
        codes, scales = self._codes(weight)
        return {"weights": codes, "scales": scales}

    def _product(self, graph: Tracer, x: str, codes: str, scales: str) -> str:
        """x (..., width) times codes (width, out) with a scale for each column."""
        if x not in self._known:
            self._known[x] = _in_units(graph, x)
        units = self._known[x]
        inputs = [units.codes, codes, units.unit, scales, units.zero]
        return graph.node("Mul", [graph.node("MatMulIntegerToFloat", inputs, MICROSOFT), units.row])

    def rows(self, graph: Tracer, table: Tensor, ids: str) -> str:
        if table.numel() < SMALL:
            return super().rows(graph, table, ids)
        codes, scales, name = *self._codes(table), graph.parameter(table)
        found = graph.node("Gather", [graph.constant(codes, f"{name}:codes"), ids])
        scale = graph.node("Gather", [graph.constant(scales[:, None], f"{name}:scales"), ids])
        return graph.node("Mul", [graph.node("Cast", [found], to=1), scale])

    def _codes(self, matrix: Tensor) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        codes, scales = rows_in_8_bits(matrix.detach().float().cpu())
        return codes.numpy(), scales.numpy()


@dataclass(frozen=True)
class _Units:
    """Activations in 8 bits, by the names of values: x = row * unit * (codes - zero)."""

    codes: str
    row: str
    unit: str
    zero: str


def _in_units(graph: Tracer, x: str) -> _Units:
    """Activations x (..., width), with a row (..., 1) for each of their rows.

    Behind a ReLU nothing is negative, so all 256 codes are there for what is positive. What the
    ReLU sets to 0 is less than the least code, and becomes it: the ReLU itself is not computed.
    """
    relu = graph.producer(x, "Relu")
    size, middle, steps = (relu, 0, 255) if relu else (graph.node("Abs", [x]), 128, 127)
    row = graph.node("ReduceMax", [size], axes=[-1], keepdims=1)
    unit = graph.constant(np.array(1 / steps, np.float32))
    zero = graph.constant(np.array(middle, np.uint8))
    share = graph.node("Div", [relu or x, row])
    return _Units(graph.node("QuantizeLinear", [share, unit, zero]), row, unit, zero)


def _column_input(
    graph: Tracer, name: str, kind: int = TensorProto.FLOAT, width: int | None = None
) -> str:
    """An input of the graph for n listed tokens: (n,), or (width, n)."""
    shape = ["listed"] if width is None else [width, "listed"]
    graph.inputs.append(helper.make_tensor_value_info(f"listed_{name}", kind, shape))
    return f"listed_{name}"


def _numbers(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().to("cpu", torch.float32).numpy()
