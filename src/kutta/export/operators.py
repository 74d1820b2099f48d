"""The torch functions that models use, as nodes of an ONNX graph.

Each operator is given the tracer, what the function returned on the meta device, and its arguments.
It returns the name of its value, or names where there are several.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from kutta.export.trace import OPERATORS, TYPES, Operator, Tracer


def operator(*names: str) -> Any:
    """Register a function for torch functions of these names."""

    def register(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return register


def value_of(graph: Tracer, value: Any, dtype: torch.dtype) -> str:
    """The name of an operand, a tensor or a number, in this type."""
    if not isinstance(value, Tensor):
        return graph.constant(np.array(value, _numpy(dtype)))
    name = graph.name(value)
    return name if value.dtype == dtype else graph.node("Cast", [name], to=TYPES[dtype])


def _numpy(dtype: torch.dtype) -> Any:
    return {torch.float32: np.float32, torch.int64: np.int64, torch.bool: np.bool_}[dtype]


def _elementwise(kind: str, swapped: bool = False) -> Operator:
    def function(graph: Tracer, found: Tensor, a: Any, b: Any, alpha: float = 1) -> str:
        first, second = value_of(graph, a, found.dtype), value_of(graph, b, found.dtype)
        if alpha != 1:
            second = graph.node("Mul", [second, value_of(graph, alpha, found.dtype)])
        return graph.node(kind, [second, first] if swapped else [first, second])

    return function


def _function(kind: str) -> Operator:
    def function(graph: Tracer, found: Tensor, x: Tensor) -> str:
        return graph.node(kind, [value_of(graph, x, found.dtype)])

    return function


operator("add", "__add__", "__radd__")(_elementwise("Add"))
operator("mul", "__mul__", "__rmul__")(_elementwise("Mul"))
operator("sub", "__sub__")(_elementwise("Sub"))
operator("rsub", "__rsub__")(_elementwise("Sub", swapped=True))
operator("div", "__truediv__")(_elementwise("Div"))
for _name in ("relu", "sigmoid", "sin", "cos", "exp"):
    operator(_name)(_function(_name.capitalize()))


@operator("eq", "__eq__")
def _eq(graph: Tracer, found: Tensor, a: Tensor, b: Any) -> str:
    return graph.node("Equal", [graph.name(a), value_of(graph, b, a.dtype)])


@operator("addcmul")
def _addcmul(graph: Tracer, found: Tensor, y: Tensor, a: Tensor, b: Tensor) -> str:
    product = graph.node("Mul", [graph.name(a), graph.name(b)])
    return graph.node("Add", [graph.name(y), product])


@operator("linear")
def _linear(
    graph: Tracer, found: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> str:
    return graph.products.linear(graph, graph.name(x), weight, bias)


@operator("matmul", "__matmul__", "bmm")
def _matmul(graph: Tracer, found: Tensor, a: Tensor, b: Tensor) -> str:
    return graph.node("MatMul", [graph.name(a), graph.name(b)])


@operator("layer_norm")
def _layer_norm(
    graph: Tracer,
    found: Tensor,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor,
    bias: Tensor,
    eps: float = 1e-5,
    *_: Any,
) -> str:
    inputs = [graph.name(value) for value in (x, weight, bias)]
    return graph.node("LayerNormalization", inputs, axis=-1, epsilon=eps)


@operator("embedding")
def _embedding(graph: Tracer, found: Tensor, ids: Tensor, table: Tensor, *_: Any, **__: Any) -> str:
    return graph.products.rows(graph, table, graph.name(ids))


@operator("clamp")
def _clamp(graph: Tracer, found: Tensor, x: Tensor, min: Any = None, max: Any = None) -> str:
    limits = ["" if n is None else value_of(graph, n, x.dtype) for n in (min, max)]
    return graph.node("Clip", [graph.name(x), *limits])


@operator("masked_fill")
def _masked_fill(graph: Tracer, found: Tensor, x: Tensor, mask: Tensor, number: float) -> str:
    filled = value_of(graph, number, x.dtype)
    return graph.node("Where", [graph.name(mask), filled, graph.name(x)])


@operator("where")
def _where(graph: Tracer, found: Tensor, mask: Tensor, a: Any, b: Any) -> str:
    values = (value_of(graph, value, found.dtype) for value in (a, b))
    return graph.node("Where", [graph.name(mask), *values])


@operator("arange")
def _arange(graph: Tracer, found: Tensor, *bounds: int, **_: Any) -> str:
    first, last = (0, *bounds) if len(bounds) == 1 else bounds
    assert first == 0, "a range that varies starts at 0"
    axes = graph.constant(np.array([0]))
    limit = graph.node("Squeeze", [graph.shape([last]), axes])
    return graph.node("Range", [graph.constant(np.array(0)), limit, graph.constant(np.array(1))])


@operator("cat")
def _cat(graph: Tracer, found: Tensor, parts: Sequence[Tensor], dim: int = 0) -> str:
    return graph.node("Concat", [graph.name(part) for part in parts], axis=dim)


@operator("pad")
def _pad(graph: Tracer, found: Tensor, x: Tensor, amounts: Sequence[int], **_: Any) -> str:
    before, after = amounts
    if before == after == 0:
        return graph.name(x)
    pads = [0] * (x.dim() - 1) + [before] + [0] * (x.dim() - 1) + [after]
    return graph.node("Pad", [graph.name(x), graph.constant(np.array(pads, np.int64))])


@operator("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze")
def _reshape(graph: Tracer, found: Tensor, x: Tensor, *_: Any, **__: Any) -> str:
    return graph.reshape(graph.name(x), x.shape, found.shape)


@operator("__getitem__")
def _getitem(graph: Tracer, found: Tensor, x: Tensor, index: Any) -> str:
    parts = cast(tuple[Any, ...], index if isinstance(index, tuple) else (index,))
    whole = all(part is None or part == slice(None) for part in parts)
    assert whole, f"the export does not know the index {index}"
    return graph.reshape(graph.name(x), x.shape, found.shape)


@operator("permute")
def _permute(graph: Tracer, found: Tensor, x: Tensor, *order: int) -> str:
    return graph.node("Transpose", [graph.name(x)], perm=list(order))


@operator("transpose")
def _transpose(graph: Tracer, found: Tensor, x: Tensor, a: int, b: int) -> str:
    order = list(range(x.dim()))
    order[a], order[b] = order[b], order[a]
    return graph.node("Transpose", [graph.name(x)], perm=order)


@operator("t")
def _t(graph: Tracer, found: Tensor, x: Tensor) -> str:
    return graph.node("Transpose", [graph.name(x)], perm=[1, 0])


@operator("unbind")
def _unbind(graph: Tracer, found: Any, x: Tensor, dim: int = 0) -> list[str]:
    parts = graph.split("Split", [graph.name(x)], x.shape[dim], axis=dim)
    shape = list(x.shape)
    shape[dim] = 1
    return [graph.reshape(part, shape, found[0].shape) for part in parts]


@operator("to", "float", "half", "contiguous", "detach")
def _same(graph: Tracer, found: Tensor, x: Tensor, *_: Any, **__: Any) -> str:
    return value_of(graph, x, found.dtype)
