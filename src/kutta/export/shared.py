"""Graphs that read their 8-bit matrices from the weights of a run, so that these exist only once.

    decoder.onnx:  codes of an embedding  ->  model.safetensors, bytes 1,234 to 5,678
                   W.T of a product       ->  Transpose(W), W in model.safetensors

Matrices lie in a safetensors file as torch has them, rows for outputs. A product of ONNX wants them
transposed, which onnxruntime does once, when it opens the graph.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from kutta.parsing import parse_json
from kutta.runtime.directory import WEIGHTS

Codes = NDArray[np.int8]


@dataclass(frozen=True)
class Stored:
    """Rows of a matrix in a safetensors file: a name, the numbers, and the first of their bytes."""

    name: str
    codes: Codes
    offset: int

    def rows(self, first: int, count: int) -> "Stored":
        """Some of the rows, which lie beside each other."""
        if count == len(self.codes):
            return self
        name = f"{self.name}[{first}:{first + count}]"
        start = self.offset + first * self.codes.shape[1]
        return Stored(name, self.codes[first : first + count], start)


def read_stored(path: Path) -> list[Stored]:
    """The 8-bit matrices of a safetensors file."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = parse_json(content[8:start].decode())
    return [
        Stored(name, _codes(content, start + first, entry["shape"]), start + first)
        for name, entry in header.items()
        if name != "__metadata__" and entry["dtype"] == "I8"
        for first in [entry["data_offsets"][0]]
    ]


def _codes(content: bytes, offset: int, shape: Sequence[int]) -> Codes:
    rows, columns = shape
    return np.frombuffer(content, np.int8, rows * columns, offset).reshape(rows, columns)


def share_weights(model: onnx.ModelProto, stored: Sequence[Stored]) -> onnx.ModelProto:
    """The model with every matrix that is stored already read from there; others stay in it."""
    graph = model.graph
    kept: list[onnx.TensorProto] = []
    read: dict[str, onnx.TensorProto] = {}
    first: list[onnx.NodeProto] = []  # they make the matrices, so they come before all others
    for tensor in graph.initializer:
        found = _find(tensor, stored)
        if found is None:
            kept.append(tensor)
            continue
        matrix, transposed = found
        read[matrix.name] = _external(matrix)
        if transposed:
            first += _transposed(tensor, matrix, kept)
        else:
            first.append(helper.make_node("Identity", [_name(matrix)], [tensor.name]))
    nodes = [*first, *graph.node]
    for field, values in (("node", nodes), ("initializer", [*kept, *read.values()])):
        graph.ClearField(field)
        getattr(graph, field).extend(values)
    return model


def _find(tensor: onnx.TensorProto, stored: Sequence[Stored]) -> tuple[Stored, bool] | None:
    """The stored rows that an initializer has, and whether it has them transposed.

    Transposed, zeros may follow: the output layer is cut into chunks, and the last one is padded.
    """
    if tensor.data_type != TensorProto.INT8 or len(tensor.dims) != 2:
        return None
    codes = numpy_helper.to_array(tensor)
    for one in stored:
        if np.array_equal(codes, one.codes):
            return one, False
    rows = codes.T
    count = int(np.flatnonzero(rows.any(axis=1)).max(initial=-1)) + 1
    for one in stored:
        if one.codes.shape[1] != rows.shape[1] or not count:
            continue
        for first in np.flatnonzero((one.codes == rows[0]).all(axis=1)).tolist():
            if np.array_equal(one.codes[first : first + count], rows[:count]):
                return one.rows(first, count), True
    return None


def _transposed(
    tensor: onnx.TensorProto, matrix: Stored, constants: list[onnx.TensorProto]
) -> Iterator[onnx.NodeProto]:
    """The nodes that make an initializer from stored rows."""
    rows, columns = matrix.codes.shape
    more, source = tensor.dims[1] - rows, _name(matrix)
    if more:
        zeros, padded = f"{tensor.name}:zeros", f"{tensor.name}:padded"
        constants.append(numpy_helper.from_array(np.zeros((more, columns), np.int8), zeros))
        yield helper.make_node("Concat", [source, zeros], [padded], axis=0)
        source = padded
    yield helper.make_node("Transpose", [source], [tensor.name], perm=[1, 0])


def _external(matrix: Stored) -> onnx.TensorProto:
    """The matrix as a tensor whose bytes are in the file of the weights."""
    tensor = onnx.TensorProto(
        name=_name(matrix),
        data_type=TensorProto.INT8,
        dims=matrix.codes.shape,
        data_location=TensorProto.EXTERNAL,
    )
    place = {"location": WEIGHTS, "offset": matrix.offset, "length": matrix.codes.size}
    for key, value in place.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _name(matrix: Stored) -> str:
    return f"stored.{matrix.name}"
