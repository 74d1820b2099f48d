"""Products with the weights of a model in a graph: in fp32, or in 8 bits."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from torch import Tensor

from kutta.export.trace import MICROSOFT, Tracer
from kutta.model.int8 import SMALL, rows_in_8_bits


class Fp32:
    """Products as torch computes them."""

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

    x[r, :] ~ s[r] (u[r, :] - 128) with u of 1 to 255, s[r] = max |x[r, :]| / 127, so a row does not
    depend on the other rows of a batch. Small matrices (gates, positions) stay in fp32.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str]] = {}  # what is in 8 bits already, by name

    def linear(self, graph: Tracer, x: str, weight: Tensor, bias: Tensor | None) -> str:
        if weight.numel() < SMALL:
            return super().linear(graph, x, weight, bias)
        codes, scales, name = *self._codes(weight), graph.parameter(weight)
        width = weight.shape[1]
        matrix = graph.constant(codes.T, f"{name}.T:codes")
        product = self._product(graph, x, matrix, graph.constant(scales, f"{name}:scale"), width)
        return product if bias is None else graph.node("Add", [product, graph.name(bias)])

    def listed(self, graph: Tracer, x: str, width: int) -> tuple[str, str]:
        codes = _column_input(graph, "weights", TensorProto.INT8, width)
        scales = _column_input(graph, "scales")
        return self._product(graph, x, codes, scales, width), _column_input(graph, "bias")

    def stored(self, weight: Tensor) -> dict[str, NDArray[Any]]:
        codes, scales = self._codes(weight)
        return {"weights": codes, "scales": scales}

    def _product(self, graph: Tracer, x: str, codes: str, scales: str, width: int) -> str:
        """x (..., width) times codes (width, out) with a scale for each column."""
        row, units = self._quantised(graph, x, width)
        one, middle = np.array(1, np.float32), np.array(128, np.uint8)
        inputs = [units, codes, graph.constant(one), scales, graph.constant(middle)]
        return graph.node("Mul", [graph.node("MatMulIntegerToFloat", inputs, MICROSOFT), row])

    def rows(self, graph: Tracer, table: Tensor, ids: str) -> str:
        if table.numel() < SMALL:
            return super().rows(graph, table, ids)
        codes, scales, name = *self._codes(table), graph.parameter(table)
        found = graph.node("Gather", [graph.constant(codes, f"{name}:codes"), ids])
        scale = graph.node("Gather", [graph.constant(scales[:, None], f"{name}:scales"), ids])
        return graph.node("Mul", [graph.node("Cast", [found], to=1), scale])

    def _quantised(self, graph: Tracer, x: str, width: int) -> tuple[str, str]:
        """The scales (..., 1) of the rows of x (..., width), and x in their units."""
        if x not in self._known:
            self._known[x] = self._in_units(graph, x, width)
        return self._known[x]

    def _in_units(self, graph: Tracer, x: str, width: int) -> tuple[str, str]:
        largest = graph.node("ReduceMax", [graph.node("Abs", [x])], axes=[-1], keepdims=1)
        scale = graph.node("Mul", [largest, graph.constant(np.array(1 / 127, np.float32))])
        scale = graph.node("Max", [scale, graph.constant(np.array(1e-30, np.float32))])
        # One scale for each row: the rows must be the first axis for that.
        flat = graph.node("Reshape", [scale, graph.constant(np.array([-1]))])
        nothing = graph.node("Mul", [flat, graph.constant(np.array(0, np.float32))])
        middle = graph.node("Add", [nothing, graph.constant(np.array(128, np.float32))])
        middle = graph.node("Cast", [middle], to=2)  # uint8
        rows = graph.node("Reshape", [x, graph.constant(np.array([-1, width]))])
        units = graph.node("QuantizeLinear", [rows, flat, middle], axis=0)
        shape = graph.node("Shape", [x])
        return scale, graph.node("Reshape", [units, shape])

    def _codes(self, matrix: Tensor) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        codes, scales = rows_in_8_bits(matrix.detach().float().cpu())
        return codes.numpy(), scales.numpy()


def _column_input(
    graph: Tracer, name: str, kind: int = TensorProto.FLOAT, width: int | None = None
) -> str:
    """An input of the graph for n listed tokens: (n,), or (width, n)."""
    shape = ["listed"] if width is None else [width, "listed"]
    graph.inputs.append(helper.make_tensor_value_info(f"listed_{name}", kind, shape))
    return f"listed_{name}"


def _numbers(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().to("cpu", torch.float32).numpy()
