"""Graphs that read their matrices from the weights of a run, so that these exist only once.

    decoder.onnx:  an embedding, W of a product in fp32  ->  model.safetensors, bytes 1,234 to 5,678
                   W.T of a product in 8 bits            ->  Transpose(W), W in model.safetensors

Matrices lie in a safetensors file as torch has them, rows for outputs. The 8-bit product of
onnxruntime wants them transposed, which is done once, when the graph is opened.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from kutta.config import WEIGHTS
from kutta.model.int8 import SMALL
from kutta.runtime.stored import stored_in

Matrix = NDArray[Any]

_ONNX = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int8): TensorProto.INT8}


@dataclass(frozen=True)
class Stored:
    """Rows of a matrix in a safetensors file: a name, the numbers, and the first of their bytes."""

    name: str
    numbers: Matrix
    offset: int

    def rows(self, first: int, count: int) -> "Stored":
        """Some of the rows, which lie beside each other."""
        if count == len(self.numbers):
            return self
        name = f"{self.name}[{first}:{first + count}]"
        start = self.offset + self.numbers[:first].nbytes
        return Stored(name, self.numbers[first : first + count], start)


def read_stored(path: Path) -> list[Stored]:
    """The large matrices of a safetensors file."""
    with open(path, "rb") as file:
        return [
            Stored(name, one.read(file), one.offset)
            for name, one in stored_in(path).items()
            if len(one.shape) == 2 and one.size >= SMALL
        ]


class Known:
    """Matrices in a file, which are found by their rows."""

    def __init__(self, matrices: Sequence[Stored]) -> None:
        self._places: dict[int, list[tuple[Stored, int]]] = defaultdict(list)
        for matrix in matrices:
            for number, row in enumerate(matrix.numbers):
                self._places[hash(row.tobytes())].append((matrix, number))

    def find(self, rows: Matrix) -> Stored | None:
        """Where these rows are. Zeros may follow, as the last chunk of an output layer has them."""
        count = int(np.flatnonzero(rows.any(axis=1)).max(initial=-1)) + 1
        for matrix, first in self._places.get(hash(rows[0].tobytes()), []) if count else []:
            if np.array_equal(matrix.numbers[first : first + count], rows[:count]):
                return matrix.rows(first, count)
        return None


def share_weights(model: onnx.ModelProto, known: Known) -> onnx.ModelProto:
    """The model with every matrix that is known read from its file; others stay in it."""
    graph = model.graph
    kept: list[onnx.TensorProto] = []
    read: dict[str, onnx.TensorProto] = {}
    first: list[onnx.NodeProto] = []  # they make the matrices, so they come before all others
    for tensor in graph.initializer:
        found = _find(tensor, known)
        if found is None:
            kept.append(tensor)
            continue
        matrix, transposed = found
        read[matrix.name] = _external(matrix)
        first += _made(tensor, matrix, transposed, kept)
    nodes = [*first, *graph.node]
    for field, values in (("node", nodes), ("initializer", [*kept, *read.values()])):
        graph.ClearField(field)
        getattr(graph, field).extend(values)
    return model


def _find(tensor: onnx.TensorProto, known: Known) -> tuple[Stored, bool] | None:
    """The rows in a file that an initializer has, and whether it has them transposed."""
    if tensor.data_type not in _ONNX.values() or len(tensor.dims) != 2:
        return None
    numbers = numpy_helper.to_array(tensor)
    if numbers.size < SMALL:
        return None
    for transposed, rows in ((False, numbers), (True, np.ascontiguousarray(numbers.T))):
        if found := known.find(rows):
            return found, transposed
    return None


def _made(
    tensor: onnx.TensorProto, matrix: Stored, transposed: bool, constants: list[onnx.TensorProto]
) -> Iterator[onnx.NodeProto]:
    """The nodes that make an initializer from rows in a file."""
    (rows, columns), source = matrix.numbers.shape, _name(matrix)
    if more := tensor.dims[int(transposed)] - rows:
        zeros, padded = f"{tensor.name}:zeros", f"{tensor.name}:padded"
        of_type = np.zeros((more, columns), matrix.numbers.dtype)
        constants.append(numpy_helper.from_array(of_type, zeros))
        yield helper.make_node("Concat", [source, zeros], [padded], axis=0)
        source = padded
    if transposed:
        yield helper.make_node("Transpose", [source], [tensor.name], perm=[1, 0])
    else:
        yield helper.make_node("Identity", [source], [tensor.name])


def _external(matrix: Stored) -> onnx.TensorProto:
    """The matrix as a tensor whose bytes are in the file of the weights."""
    tensor = onnx.TensorProto(
        name=_name(matrix),
        data_type=_ONNX[matrix.numbers.dtype],
        dims=matrix.numbers.shape,
        data_location=TensorProto.EXTERNAL,
    )
    place = {"location": WEIGHTS, "offset": matrix.offset, "length": matrix.numbers.nbytes}
    for key, value in place.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _name(matrix: Stored) -> str:
    return f"stored.{matrix.name}"
