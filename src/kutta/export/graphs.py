"""The two graphs of a model: the encoder, and one step of the decoder."""

from collections.abc import Callable

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import Tensor

from kutta.data.tokenizer import EOS
from kutta.export.products import Fp32, Int8
from kutta.export.trace import MICROSOFT, VARYING, Products, Tracer
from kutta.model import TextModel, TranslationModel
from kutta.model.attention import KeyValues, Slots, relative_offsets
from kutta.model.field import Context
from kutta.model.stack import LayerState

from kutta.export import operators  # isort: skip  # fills the table of operators

assert operators.OPERATORS
PRODUCTS: dict[str, type[Products]] = {"fp32": Fp32, "int8": Int8}

K, B, N, S, SEEN = VARYING.values()  # SEEN: slots, with those of the step
BLOCKS = (256, 128, 64, 32)  # tokens whose maximum decides whether any can be among the best


class Parts(Slots):
    """Slots in a graph: those of earlier steps and new ones apart, so that none is copied."""

    def __init__(self, graph: Tracer, parts: list[KeyValues]) -> None:
        super().__init__(parts[0].keys, parts[0].values)
        self.graph, self.parts = graph, parts

    def attend(self, q: Tensor, bias: Tensor) -> Tensor:
        graph, (count, sentences, heads, width) = self.graph, q.shape
        scores = [
            # The query's sentences and heads come before its hypotheses without a copy.
            self._product(
                graph.name(q),
                graph.name(kv.keys),
                transBatchA=1,
                transB=1,
                alpha=width**-0.5,
            )
            for kv in self.parts
        ]  # each (B, H, K, slots)
        logits = scores[0] if len(scores) == 1 else graph.node("Concat", scores, axis=3)
        logits = graph.node("Add", [logits, graph.name(bias)])
        weights = [graph.node("Softmax", [logits], axis=-1)]
        if len(self.parts) == 2:
            weights = self._cut(weights[0])
        attended = [
            self._product(weight, graph.name(kv.values))
            for weight, kv in zip(weights, self.parts, strict=True)
        ]  # each (B, H, K, d_h)
        total = attended[0] if len(attended) == 1 else graph.node("Add", attended)
        total = graph.node("Transpose", [total], perm=[2, 0, 1, 3])
        shape = graph.constant(np.array([0, 0, heads * width]))
        name = graph.node("Reshape", [total, shape])
        return graph.symbol(name, (count, sentences, heads * width))

    def _product(self, a: str, b: str, **attributes: float) -> str:
        return self.graph.node("FusedMatMul", [a, b], MICROSOFT, **attributes)

    def _cut(self, weights: str) -> list[str]:
        """The weights of earlier slots and those of the new ones."""
        graph, axis = self.graph, self.graph.constant(np.array([3]))
        slots, zero = graph.shape([N]), graph.constant(np.array([0]))
        end = graph.constant(np.array([2**62]))
        return [
            graph.node("Slice", [weights, zero, slots, axis]),
            graph.node("Slice", [weights, slots, end, axis]),
        ]


class Past(KeyValues):
    """A cache in a graph: an input of earlier slots; the new ones become outputs."""

    def __init__(self, graph: Tracer, number: int, shape: tuple[int, ...]) -> None:
        self.graph, self.number = graph, number
        super().__init__(*(graph.input(name, shape) for name in cache_names(number)))

    def append(self, keys: Tensor, values: Tensor) -> Parts:
        new = KeyValues(keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3))
        pair = (new.keys, new.values)
        for name, value in zip(cache_names(self.number), pair, strict=True):
            self.graph.output(f"new_{name}", value)
        return Parts(self.graph, [self, new])


class Whole(KeyValues):
    """No cache: all positions are given at once, as in the encoder."""

    def __init__(self, graph: Tracer) -> None:
        self.graph = graph

    def append(self, keys: Tensor, values: Tensor) -> Parts:
        by_head = KeyValues(keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3))
        return Parts(self.graph, [by_head])


def cache_names(number: int) -> tuple[str, str]:
    """The inputs of a cache; the outputs are the same after "new_"."""
    return f"keys.{number}", f"values.{number}"


def memory_names(number: int) -> tuple[str, str]:
    """The outputs of the encoder and inputs of the decoder of a projected memory."""
    return f"memory_keys.{number}", f"memory_values.{number}"


@torch.no_grad()
def encoder_graph(model: TranslationModel, precision: str) -> onnx.ModelProto:
    """source (B, S) -> keys and values (B, H, S, d_h) of every cross-attention."""
    graph = Tracer(model, PRODUCTS[precision]())
    with graph:
        source = graph.input("source", (B, S), torch.int64)
        bias = torch.where(source == model.pad, -torch.inf, 0.0)[:, None, None]
        clip = model.encoder.shape.settings.relative_positions
        offsets = relative_offsets(S, S, clip, source.device)
        layers = [
            LayerState([], [Whole(graph) for _ in range(layer.evaluations)])
            for layer in model.encoder.each_layer()
        ]
        context = Context(bias=bias, offsets=offsets)
        states = model.encoder(model.source_embedding(source), context, states=layers)
        projected = [kv for layer in model.decoder.each_layer() for kv in layer.projected(states)]
        for number, kv in enumerate(projected):
            for name, value in zip(memory_names(number), (kv.keys, kv.values), strict=True):
                graph.output(name, value.permute(1, 2, 0, 3))
    return graph.model()


@torch.no_grad()
def decoder_graph(model: TextModel, precision: str) -> onnx.ModelProto:
    """One step: see `Step` in kutta.translate.cached for the inputs, `best` for the outputs."""
    graph = Tracer(model, PRODUCTS[precision]())
    settings = model.decoder.shape.settings
    heads, clip = settings.heads, settings.relative_positions
    width = settings.d_model // heads
    with graph:
        tokens = graph.input("tokens", (K, B), torch.int64)
        positions = graph.input("positions", (B,), torch.int64)
        layers: list[LayerState] = []
        caches = memories = 0
        for layer in model.decoder.each_layer():
            kept: list[KeyValues] = []
            read: list[KeyValues] = []
            for _ in range(layer.evaluations):
                kept.append(Past(graph, caches, (B, heads, N, width)))
                caches += 1
            for _ in layer.sublayers("cross") if layer.cross is not None else []:
                inputs = [
                    graph.input(name, (B, heads, S, width)) for name in memory_names(memories)
                ]
                read.append(Parts(graph, [KeyValues(*inputs)]))
                memories += 1
            layers.append(LayerState(read, kept))
        context = Context(
            bias=graph.input("bias", (B, 1, K, SEEN)),
            offsets=graph.input("offsets", (B, clip + 1, SEEN)) if clip else None,
            memory_bias=graph.input("memory_bias", (B, 1, 1, S)) if memories else None,
        )
        hidden = model.extend(tokens, positions, context, layers)
        rows = hidden.transpose(0, 1).flatten(0, 1)  # (B * K, d)
        best(graph, torch.nn.functional.linear(rows, *_output_layer(model.output_weight)))
    return graph.model()


def output_size(model: TextModel) -> int:
    """The number of tokens of the output layer, with those that are added."""
    return len(model.output_weight) + -len(model.output_weight) % BLOCKS[-1]


def _output_layer(weight: Tensor) -> tuple[Tensor, Tensor | None]:
    """Weight (V', d) and bias (V',) of an output layer whose size V' has blocks.

    Where V has none, impossible tokens are added.
    """
    more = -len(weight) % BLOCKS[-1]
    if not more:
        return weight, None
    bias = torch.zeros(len(weight) + more)
    bias[len(weight) :] = -torch.inf
    return torch.nn.functional.pad(weight, (0, 0, 0, more)), bias


def best(graph: Tracer, logits: Tensor) -> None:
    """Outputs values and ids (R, n) of the `count` best of logits (R, V), and `ends` (R,) of EOS.

    With a count of V they are those of all tokens, in order.
    """
    (R, V), zero = logits.shape, graph.constant(np.array([0]))
    graph.inputs.append(helper.make_tensor_value_info("count", TensorProto.INT64, [1]))
    values = graph.node("LogSoftmax", [graph.name(logits)], axis=-1)
    ends = graph.node("Gather", [values, graph.constant(np.array(EOS))], axis=1)
    graph.output("ends", graph.symbol(ends, (R,)))
    size = graph.constant(np.array([V]))
    every = graph.node("Squeeze", [graph.node("Equal", ["count", size]), zero])
    whole = _branch("whole", _whole, graph, values, V)
    few = _branch("few", _few, graph, values, V)
    found = graph.split("If", [every], 2, then_branch=whole, else_branch=few)
    for name, value, dtype in zip(
        ("values", "ids"), found, (torch.float32, torch.int64), strict=True
    ):
        graph.output(name, graph.symbol(value, (R, VARYING["slots"]), dtype))


def _branch(
    name: str, body: Callable[[Tracer, str, int], tuple[str, str]], graph: Tracer, x: str, V: int
) -> onnx.GraphProto:
    """A graph inside the graph, whose outputs are values and ids."""
    outer, graph.nodes = graph.nodes, []
    values, ids = (graph.node("Identity", [found]) for found in body(graph, x, V))
    inside, graph.nodes = graph.nodes, outer
    outputs = [
        helper.make_tensor_value_info(values, TensorProto.FLOAT, None),
        helper.make_tensor_value_info(ids, TensorProto.INT64, None),
    ]
    return helper.make_graph(inside, name, [], outputs)


def _whole(graph: Tracer, values: str, V: int) -> tuple[str, str]:
    """All values (R, V), and the ids in order."""
    ids = graph.constant(np.arange(V), "all_ids")
    return values, graph.node("Expand", [ids, graph.node("Shape", [values])])


def _few(graph: Tracer, values: str, V: int) -> tuple[str, str]:
    """The `count` best values and their ids; of equal ones the first, as TopK promises.

    Only blocks of tokens with the `count` highest maxima can have them.
    """
    block = block_of(V)
    numbers = graph.constant(np.array([V // block]))
    size = graph.constant(np.array(block))
    blocks = graph.node("Reshape", [values, graph.constant(np.array([0, V // block, block]))])
    maxima = graph.node("ReduceMax", [blocks], axes=[2], keepdims=0)
    some = graph.node("Min", ["count", numbers])
    _, chosen = graph.split("TopK", [maxima, some], 2)
    chosen, _ = graph.split("TopK", [chosen, some], 2, largest=0)  # in order, for equal values
    last = graph.constant(np.array([-1]))
    where = graph.node("Unsqueeze", [chosen, last])
    inside = graph.node("GatherND", [blocks, where], batch_dims=1)
    inside = graph.node("Reshape", [inside, graph.constant(np.array([0, -1]))])
    best, places = graph.split("TopK", [inside, "count"], 2)
    rank = graph.node("Div", [places, size])
    first = graph.node("Mul", [graph.node("GatherElements", [chosen, rank], axis=1), size])
    return best, graph.node("Add", [first, graph.node("Mod", [places, size])])


def block_of(V: int) -> int:
    """The size of the blocks of a vocabulary: it must divide its size."""
    return next(size for size in BLOCKS if V % size == 0)
