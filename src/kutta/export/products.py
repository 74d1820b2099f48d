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

MOST_DEVIATIONS = 6  # what a norm returns is hardly ever further from its mean


class Fp32:
    """Products as torch computes them."""

    kept: ClassVar[torch.dtype] = torch.float32  # the type of keys and values between steps

    def linear(self, graph: Tracer, x: str, weight: Tensor, bias: Tensor | None) -> str:
        product = graph.node("FusedMatMul", [x, graph.name(weight)], MICROSOFT, transB=1)
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
        x[r, :] ~ c / 127 (u[r, :] - 128),     u of 0 to 255,  behind a norm, see `_behind_a_norm`

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
        added = "" if bias is None else graph.name(bias)
        return self._product(graph, x, matrix, graph.constant(scales, f"{name}:scale"), added)

    def listed(self, graph: Tracer, x: str, width: int) -> tuple[str, str]:
        codes = _column_input(graph, "weights", TensorProto.INT8, width)
        scales = _column_input(graph, "scales")
        return self._product(graph, x, codes, scales), _column_input(graph, "bias")

    def stored(self, weight: Tensor) -> dict[str, NDArray[Any]]:
        codes, scales = self._codes(weight)
        return {"weights": codes, "scales": scales}

    def _product(self, graph: Tracer, x: str, codes: str, scales: str, bias: str = "") -> str:
        """x (..., width) times codes (width, out) with a scale for each column, plus a bias."""
        if x not in self._known:
            self._known[x] = _behind_a_norm(graph, x) or _by_rows(graph, x)
        units = self._known[x]
        inputs = [units.codes, codes, units.unit, scales, units.zero, "", bias]
        if not units.row:
            return graph.node("MatMulIntegerToFloat", inputs, MICROSOFT)
        product = graph.node("MatMulIntegerToFloat", inputs[:-2], MICROSOFT)
        scaled = graph.node("Mul", [product, units.row])
        return graph.node("Add", [scaled, bias]) if bias else scaled

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
    """Activations in 8 bits, by the names of values: x = unit * (codes - zero).

    Without a zero it is 0. With a `row` (..., 1), each row is that times as large.
    """

    codes: str
    unit: str
    zero: str = ""
    row: str = ""


def unit_behind_norm(gain: NDArray[np.float32], offset: NDArray[np.float32]) -> float:
    """What a code is worth where activations are what a layer norm returns.

    A norm gives numbers n of mean 0 and variance 1, times a gain g, plus an offset b. Numbers
    beyond 6 are so rare that one scale for all rows,  c = max_i 6 |g_i| + |b_i|,  is enough.
    """
    largest = (MOST_DEVIATIONS * np.abs(gain) + np.abs(offset)).max()
    return float(np.float32(largest / 127))


def _behind_a_norm(graph: Tracer, x: str) -> _Units | None:
    """Activations x (..., width), where they are what a layer norm returns; else None.

    One scale is enough for all rows, see `unit_behind_norm`.
    """
    norm = graph.origin(x)
    if norm is None or norm.op_type != "LayerNormalization":
        return None
    found = unit_behind_norm(*(graph.constants[name] for name in norm.input[1:3]))
    unit = graph.constant(np.array(found, np.float32))
    zero = graph.constant(np.array(128, np.uint8))
    return _Units(graph.node("QuantizeLinear", [x, unit, zero]), unit, zero)


def _by_rows(graph: Tracer, x: str) -> _Units:
    """Activations x (..., width), with a scale for each of their rows."""
    made = graph.origin(x)
    if made is not None and made.op_type == "Relu" and made.output[0] == x:
        return _behind_a_relu(graph, made.input[0])
    row = graph.node("ReduceMax", [graph.node("Abs", [x])], axes=[-1], keepdims=1)
    unit = graph.constant(np.array(1 / 127, np.float32))
    zero = graph.constant(np.array(128, np.uint8))
    share = graph.node("Div", [x, row])
    return _Units(graph.node("QuantizeLinear", [share, unit, zero]), unit, zero, row)


def _behind_a_relu(graph: Tracer, x: str) -> _Units:
    """Activations relu(x), x (..., width), with a scale for each of their rows.

    Nothing is negative, so all 256 codes are there for what is positive. What the ReLU sets to 0 is
    less than the least code, and becomes it, so the ReLU itself is not computed. The node that
    quantises divides by the scales, for which rows have to be its first axis.
    """
    row = graph.node("Relu", [graph.node("ReduceMax", [x], axes=[-1], keepdims=1)])
    scale = graph.node("Mul", [row, graph.constant(np.array(1 / 255, np.float32))])
    scales = graph.node("Reshape", [scale, graph.constant(np.array([-1]))])
    codes = graph.node("QuantizeLinear", [graph.node("Flatten", [x], axis=-1), scales], axis=0)
    codes = graph.node("Reshape", [codes, graph.node("Shape", [x])])
    return _Units(codes, graph.constant(np.array(1, np.float32)), row=scale)


def _column_input(
    graph: Tracer, name: str, kind: int = TensorProto.FLOAT, width: int | None = None
) -> str:
    """An input of the graph for n listed tokens: (n,), or (width, n)."""
    shape = ["listed"] if width is None else [width, "listed"]
    graph.inputs.append(helper.make_tensor_value_info(f"listed_{name}", kind, shape))
    return f"listed_{name}"


def _numbers(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().to("cpu", torch.float32).numpy()
