"""The output layer of a graph: the best continuations, without all log-probabilities at once.

Tokens are computed in chunks. The logits of a chunk stay in the processor's cache while their
sum and the best of them are found, and their memory serves the next chunk.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import Tensor
from torch.nn import functional

from kutta.data.tokenizer import EOS
from kutta.export.trace import VARYING, Tracer

CHUNK = 8192  # tokens whose logits are computed together
BLOCK = 32  # tokens whose maximum decides whether any of them can be among the best

Found = tuple[str, str]  # values and ids


def output_size(vocabulary: int) -> int:
    """The number of tokens of the output layer: whole blocks."""
    return vocabulary + -vocabulary % BLOCK


def best(graph: Tracer, rows: Tensor, weight: Tensor) -> None:
    """Outputs values and ids (R, n) of the `count` best, and `ends` (R,) of EOS, of rows (R, d).

    Values are log-probabilities. With a count of `output_size` they are those of all tokens, in
    order; where the vocabulary has no whole blocks, impossible tokens are at its end.
    """
    R, V = len(rows), output_size(len(weight))
    graph.inputs.append(helper.make_tensor_value_info("count", TensorProto.INT64, [1]))
    whole = graph.node("Equal", ["count", graph.constant(np.array([V]))])
    whole = graph.node("Squeeze", [whole, graph.constant(np.array([0]))])
    sums, values, ids, end = list[str](), list[str](), list[str](), ""
    for first, logits in _chunks(graph, rows, weight):
        name, size = graph.name(logits), logits.shape[1]
        if first == 0:
            end = graph.node("Gather", [name, graph.constant(np.array([EOS]))], axis=1)
        sums.append(_log_sum(graph, name))
        branches = [
            _branch(graph, partial(_all, graph, name, first, size)),
            _branch(graph, partial(_few, graph, name, first, size)),
        ]
        found = graph.split("If", [whole], 2, then_branch=branches[0], else_branch=branches[1])
        values.append(found[0])
        ids.append(found[1])
    total = graph.node("Concat", sums, axis=1)
    total = graph.node("ReduceLogSumExp", [total], axes=[1], keepdims=1)  # (R, 1)
    merged = graph.node("Concat", values, axis=1), graph.node("Concat", ids, axis=1)
    branches = _branch(graph, lambda: merged), _branch(graph, lambda: _highest(graph, *merged))
    found = graph.split("If", [whole], 2, then_branch=branches[0], else_branch=branches[1])
    ends = graph.node("Squeeze", [graph.node("Sub", [end, total]), graph.constant(np.array([1]))])
    graph.output("ends", graph.symbol(ends, (R,)))
    shape = R, VARYING["slots"]
    graph.output("values", graph.symbol(graph.node("Sub", [found[0], total]), shape))
    graph.output("ids", graph.symbol(found[1], shape, torch.int64))


def _chunks(graph: Tracer, rows: Tensor, weight: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The first token and the logits (R, size) of every chunk."""
    V = output_size(len(weight))
    for first in range(0, V, CHUNK):
        part = weight[first : first + CHUNK]
        more = -len(part) % BLOCK
        bias = None
        if more:
            bias = torch.zeros(len(part) + more)
            bias[len(part) :] = -torch.inf
            part = functional.pad(part, (0, 0, 0, more))
        yield first, functional.linear(rows, part, bias)


def _log_sum(graph: Tracer, logits: str) -> str:
    """log sum exp (R, 1) of logits (R, size), from what the fast LogSoftmax subtracts."""
    zero = graph.constant(np.array([0]))
    one = graph.node("Gather", [graph.node("LogSoftmax", [logits], axis=-1), zero], axis=1)
    return graph.node("Sub", [graph.node("Gather", [logits, zero], axis=1), one])


def _branch(graph: Tracer, body: Callable[[], Found]) -> onnx.GraphProto:
    """A graph inside the graph, whose outputs are values and ids."""
    outer, graph.nodes = graph.nodes, []
    values, ids = (graph.node("Identity", [found]) for found in body())
    inside, graph.nodes = graph.nodes, outer
    outputs = [
        helper.make_tensor_value_info(values, TensorProto.FLOAT, None),
        helper.make_tensor_value_info(ids, TensorProto.INT64, None),
    ]
    return helper.make_graph(inside, "branch", [], outputs)


def _all(graph: Tracer, logits: str, first: int, size: int) -> Found:
    """All logits (R, size), and the ids in order."""
    ids = graph.constant(np.arange(first, first + size), f"ids.{first}")
    return logits, graph.node("Expand", [ids, graph.node("Shape", [logits])])


def _few(graph: Tracer, logits: str, first: int, size: int) -> Found:
    """The `count` best of logits (R, size), or all, and their ids; of equal ones the first.

    Only blocks of tokens with the `count` highest maxima can have them.
    """
    block, offset = graph.constant(np.array(BLOCK)), graph.constant(np.array(first))
    shape = graph.constant(np.array([0, size // BLOCK, BLOCK]))
    blocks = graph.node("Reshape", [logits, shape])
    maxima = graph.node("ReduceMax", [blocks], axes=[2], keepdims=0)
    some = graph.node("Min", ["count", graph.constant(np.array([size // BLOCK]))])
    _, chosen = graph.split("TopK", [maxima, some], 2)
    chosen, _ = graph.split("TopK", [chosen, some], 2, largest=0)  # in order, for equal values
    where = graph.node("Unsqueeze", [chosen, graph.constant(np.array([-1]))])
    inside = graph.node("GatherND", [blocks, where], batch_dims=1)
    inside = graph.node("Reshape", [inside, graph.constant(np.array([0, -1]))])
    some = graph.node("Min", ["count", graph.constant(np.array([size]))])
    values, places = graph.split("TopK", [inside, some], 2)
    number = graph.node("GatherElements", [chosen, graph.node("Div", [places, block])], axis=1)
    ids = graph.node("Add", [graph.node("Mul", [number, block]), offset])
    return values, graph.node("Add", [ids, graph.node("Mod", [places, block])])


def _highest(graph: Tracer, values: str, ids: str) -> Found:
    """The `count` best of what the chunks found, and their ids."""
    found, places = graph.split("TopK", [values, "count"], 2)
    return found, graph.node("GatherElements", [ids, places], axis=1)
