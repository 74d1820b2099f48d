"""The output layer of a graph: the best continuations, without all log-probabilities at once.

Tokens are computed in chunks. The logits of a chunk stay in the processor's cache while their sum
is computed and the blocks of tokens that have the highest are taken, and their memory serves the
next chunk. The best tokens are among those of the best blocks.
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
from kutta.runtime.shortlist import BLOCK  # whose maximum says whether any can be the best

CHUNK = 8192  # tokens whose logits are computed together

Found = tuple[str, str]  # values and ids


def output_size(vocabulary: int) -> int:
    """The number of tokens of the output layer: whole blocks."""
    return vocabulary + -vocabulary % BLOCK


def best(graph: Tracer, rows: Tensor, weight: Tensor) -> None:
    """Outputs values and ids (R, n) of the `count` best, and `ends` (R,) of EOS, of rows (R, d).

    Values are log-probabilities. With a count of `output_size` they are those of all tokens, in
    order; where the vocabulary has no whole blocks, impossible tokens are at its end.
    """
    R = len(rows)
    whole = _whole(graph, graph.constant(np.array([output_size(len(weight))])))
    sums, values, ids, end = list[str](), list[str](), list[str](), ""
    for first, logits in _chunks(graph, rows, weight):
        name = graph.name(logits)
        if first == 0:
            end = graph.node("Gather", [name, graph.constant(np.array([EOS]))], axis=1)
        sums.append(_log_sum(graph, name))
        branches = [_branch(graph, partial(which, graph, name, first)) for which in (_all, _blocks)]
        found = graph.split("If", [whole], 2, then_branch=branches[0], else_branch=branches[1])
        values.append(found[0])
        ids.append(found[1])
    total = _log_sum(graph, graph.node("Concat", sums, axis=1))
    merged = graph.node("Concat", values, axis=1), graph.node("Concat", ids, axis=1)
    branches = _branch(graph, lambda: merged), _branch(graph, lambda: _merge(graph, *merged))
    found = graph.split("If", [whole], 2, then_branch=branches[0], else_branch=branches[1])
    ends = graph.node("Squeeze", [graph.node("Sub", [end, total]), graph.constant(np.array([1]))])
    graph.output("ends", graph.symbol(ends, (R,)))
    shape = R, VARYING["slots"]
    graph.output("values", graph.symbol(graph.node("Sub", [found[0], total]), shape))
    graph.output("ids", graph.symbol(found[1], shape, torch.int64))


def best_listed(graph: Tracer, rows: Tensor) -> None:
    """The same of listed tokens: columns of the output layer are inputs, ids their numbers."""
    R, (found, bias) = len(rows), graph.products.listed(graph, graph.name(rows), rows.shape[1])
    logits = graph.node("Add", [found, bias])
    whole = _whole(graph, graph.node("Shape", [bias]))
    total = _log_sum(graph, logits)
    end = graph.node("Gather", [logits, graph.constant(np.array([EOS]))], axis=1)
    branches = [_branch(graph, partial(which, graph, logits)) for which in (_all, _few)]
    values, ids = graph.split("If", [whole], 2, then_branch=branches[0], else_branch=branches[1])
    ends = graph.node("Squeeze", [graph.node("Sub", [end, total]), graph.constant(np.array([1]))])
    graph.output("ends", graph.symbol(ends, (R,)))
    shape = R, VARYING["slots"]
    graph.output("values", graph.symbol(graph.node("Sub", [values, total]), shape))
    graph.output("ids", graph.symbol(ids, shape, torch.int64))


def _whole(graph: Tracer, size: str) -> str:
    """Whether the input `count` asks for all tokens."""
    graph.inputs.append(helper.make_tensor_value_info("count", TensorProto.INT64, [1]))
    equal = graph.node("Equal", ["count", size])
    return graph.node("Squeeze", [equal, graph.constant(np.array([0]))])


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


def _all(graph: Tracer, logits: str, first: int = 0) -> Found:
    """All logits (R, size), and the ids in order."""
    shape, zero, one = graph.node("Shape", [logits]), np.array(0), np.array(1)
    size = graph.node("Gather", [shape, graph.constant(one)])
    numbers = graph.node("Range", [graph.constant(zero), size, graph.constant(one)])
    ids = graph.node("Add", [numbers, graph.constant(np.array(first))])
    return logits, graph.node("Expand", [ids, shape])


def _few(graph: Tracer, logits: str) -> Found:
    """The `count` best of logits (R, size), or all, and their ids; of equal ones the first."""
    return _highest(graph, *_blocks(graph, logits))


def _blocks(graph: Tracer, logits: str, first: int = 0, ids: str = "") -> Found:
    """The blocks of logits (R, size) with the `count` highest maxima, in order: (R, n * BLOCK).

    Only these can have the best. Their ids are those of `ids` (R, size), or numbers from `first`.
    """
    blocks = _in_blocks(graph, logits)
    maxima = graph.node("ReduceMax", [blocks], axes=[2], keepdims=0)
    some = _at_most(graph, maxima)
    _, chosen = graph.split("TopK", [maxima, some], 2, sorted=0)
    chosen, _ = graph.split("TopK", [chosen, some], 2, largest=0)  # in order, for equal values
    where = graph.node("Unsqueeze", [chosen, graph.constant(np.array([-1]))])
    values = graph.node("GatherND", [blocks, where], batch_dims=1)
    if ids:
        found = graph.node("GatherND", [_in_blocks(graph, ids), where], batch_dims=1)
    else:
        start = graph.node("Mul", [where, graph.constant(np.array(BLOCK))])
        found = graph.node("Add", [start, graph.constant(np.arange(first, first + BLOCK))])
    row = graph.constant(np.array([0, -1]))
    return graph.node("Reshape", [values, row]), graph.node("Reshape", [found, row])


def _in_blocks(graph: Tracer, values: str) -> str:
    return graph.node("Reshape", [values, graph.constant(np.array([0, -1, BLOCK]))])


def _at_most(graph: Tracer, columns: str) -> str:
    """`count`, or the number of columns if that is less."""
    size = graph.node("Gather", [graph.node("Shape", [columns]), graph.constant(np.array([1]))])
    return graph.node("Min", ["count", size])


def _merge(graph: Tracer, values: str, ids: str) -> Found:
    """The `count` best of the blocks of all chunks."""
    return _highest(graph, *_blocks(graph, values, ids=ids))


def _highest(graph: Tracer, values: str, ids: str) -> Found:
    """The `count` best of values (R, size), or all, and their ids."""
    found, places = graph.split("TopK", [values, _at_most(graph, values)], 2)
    return found, graph.node("GatherElements", [ids, places], axis=1)
