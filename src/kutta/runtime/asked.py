"""What an ONNX file asks of onnxruntime, found without the onnx package: other files, operators.

An ONNX file is a protocol buffer: fields of a number, a wire type and a value. Weights are either
in it or, by a name, in another file, which could be any file of the machine. Operators could loop
without end. So all tensors and nodes are looked at before onnxruntime opens the file. The numbers
are those of onnx.proto, which stay.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kutta.errors import InputError
from kutta.limits import DEPTH

# The fields of a message that lead to tensors: number -> kind of message.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "entry": {},
}
_LOCATION = 14  # of a tensor: 0 in this file, 1 in another
_OPERATOR = 4  # of a node
# All that an export has. None of them repeats others, so the work of a graph has an end.
_NAMES = (
    "Abs Add Cast Clip Concat Cos Div Equal Exp Expand Flatten FusedMatMul Gather "
    "GatherElements GatherND Identity If LayerNormalization LogSoftmax MatMul "
    "MatMulIntegerToFloat Min Mod Mul Pad QuantizeLinear Range ReduceMax "
    "ReduceSum Relu Reshape Shape Sigmoid Sin Slice Softmax Split Squeeze Sub TopK Transpose "
    "Unsqueeze Where"
)
OPERATORS = frozenset(_NAMES.split())


class Asked(NamedTuple):
    """The names of the other files that an ONNX file reads, and of its operators."""

    files: set[str]
    operators: set[str]


def asked_by(path: Path) -> Asked:
    """What an ONNX file asks for."""
    try:
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # It is closed when the last view of it is gone.
        found = list(_asked(memoryview(data), "model", DEPTH))
    except (OSError, ValueError, IndexError) as error:
        raise InputError(f"{path} is not an ONNX file ({error}); export the run again.") from None
    return Asked(*({text for what, text in found if what == kind} for kind in Asked._fields))


def _asked(message: memoryview, kind: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth == 0:
        raise ValueError(f"it has more than {DEPTH} messages in each other")
    located, elsewhere = False, False
    for number, wire, value in _fields(message):
        inside = _FIELDS[kind].get(number)
        if kind == "tensor" and number == _LOCATION:
            elsewhere = value != 0
        elif kind == "node" and number == _OPERATOR and isinstance(value, memoryview):
            yield "operators", bytes(value[:200]).decode("utf-8", "replace")
        elif inside == "entry" and isinstance(value, memoryview):
            key, text = _entry(value)
            located = located or key == "location"
            if key == "location":
                yield "files", text
        elif inside and wire == 2 and isinstance(value, memoryview):
            yield from _asked(value, inside, depth - 1)
    if elsewhere and not located:
        yield "files", "unknown"


def _entry(message: memoryview) -> tuple[str, str]:
    """The key and the value of an entry of external_data."""
    found = {number: value for number, _, value in _fields(message)}
    texts = (bytes(v) if isinstance(v := found.get(field), memoryview) else b"" for field in (1, 2))
    key, value = (text[-200:].decode("utf-8", "replace") for text in texts)
    return key, value


def _fields(message: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """The fields of a message: number, wire type, value."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        wire = key & 7
        value: int | memoryview = 0
        if wire == 0:
            value, position = _varint(message, position)
        elif wire == 2:
            length, position = _varint(message, position)
            value = message[position : position + length]
            if len(value) != length:
                raise ValueError("it is truncated")
            position += length
        elif wire in (1, 5):
            position += 8 if wire == 1 else 4
        else:
            raise ValueError("it is not a protocol buffer")
        yield key >> 3, wire, value


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
        if shift > 63:
            raise ValueError("it is not a protocol buffer")
