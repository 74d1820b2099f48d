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
    """A matrix in a safetensors file: its name, its numbers, and the first of its bytes."""

    name: str
    codes: Codes
    offset: int


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
        matrix = next(_matching(tensor, stored), None)
        if matrix is None:
            kept.append(tensor)
            continue
        read[matrix.name] = _external(matrix)
        first += _made(tensor, matrix, kept)
    nodes = [*first, *graph.node]
    for field, values in (("node", nodes), ("initializer", [*kept, *read.values()])):
        graph.ClearField(field)
        getattr(graph, field).extend(values)
    return model


def _matching(tensor: onnx.TensorProto, stored: Sequence[Stored]) -> Iterator[Stored]:
    """The stored matrix that an initializer has, as it is or transposed and padded with zeros."""
    if tensor.data_type != TensorProto.INT8 or len(tensor.dims) != 2:
        return
    codes = numpy_helper.to_array(tensor)
    for one in stored:
        rows, columns = one.codes.shape
        if np.array_equal(codes, one.codes):
            yield one
        elif len(codes) == columns and codes.shape[1] >= rows:
            padding = codes[:, rows:]
            if np.array_equal(codes[:, :rows], one.codes.T) and not padding.any():
                yield one


def _made(
    tensor: onnx.TensorProto, matrix: Stored, constants: list[onnx.TensorProto]
) -> Iterator[onnx.NodeProto]:
    """The nodes that make an initializer from the stored matrix."""
    if np.array_equal(numpy_helper.to_array(tensor), matrix.codes):
        yield helper.make_node("Identity", [_name(matrix)], [tensor.name])
        return
    rows, columns = matrix.codes.shape
    more, source = tensor.dims[1] - rows, _name(matrix)
    if more:
        zeros = f"{tensor.name}:zeros"
        constants.append(numpy_helper.from_array(np.zeros((more, columns), np.int8), zeros))
        padded = f"{tensor.name}:padded"
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
