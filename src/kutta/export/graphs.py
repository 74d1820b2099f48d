"""The two graphs of a model: the encoder, and one step of the decoder."""

import numpy as np
import onnx
import torch
from torch import Tensor

from kutta.export.output import best, best_listed
from kutta.export.products import Fp32, Int8
from kutta.export.trace import MICROSOFT, VARYING, Tracer
from kutta.model import TextModel, TranslationModel
from kutta.model.attention import KeyValues, Slots, relative_offsets
from kutta.model.field import Context
from kutta.model.stack import LayerState

from kutta.export import operators  # isort: skip  # fills the table of operators

assert operators.OPERATORS
PRODUCTS: dict[str, type[Fp32]] = {"fp32": Fp32, "int8": Int8}

K, B, N, S, SEEN = VARYING.values()  # SEEN: slots, with those of the step


class Parts(Slots):
    """Slots in a graph: those of earlier steps and new ones apart, so that none is copied.

    Keys and values are (S, B, H, d_h), or (B, H, S, d_h) with `by_head`.
    """

    def __init__(self, graph: Tracer, parts: list[KeyValues], by_head: bool = False) -> None:
        super().__init__(parts[0].keys, parts[0].values)
        self.graph, self.parts, self.slots_first = graph, parts, int(not by_head)

    def attend(self, q: Tensor, bias: Tensor) -> Tensor:
        graph, (count, sentences, heads, width) = self.graph, q.shape
        # onnxruntime makes a single number a factor of the product, which is then much slower for a
        # single hypothesis. It leaves a vector alone.
        scale = graph.constant(np.full(width, width**-0.5, np.float32))
        query = graph.node("Mul", [graph.name(q), scale])
        scores = [
            # Sentences and heads come before hypotheses and slots without a copy.
            self._product(query, graph.name(kv.keys), transBatchA=1, transB=1)
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

    def _product(self, a: str, b: str, **attributes: int) -> str:
        attributes["transBatchB"] = self.slots_first
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
        for name, value in zip(cache_names(self.number), (keys, values), strict=True):
            self.graph.output(f"new_{name}", value)
        return Parts(self.graph, [self, KeyValues(keys, values)])


class Whole(KeyValues):
    """No cache: all positions are given at once, as in the encoder."""

    def __init__(self, graph: Tracer) -> None:
        self.graph = graph

    def append(self, keys: Tensor, values: Tensor) -> Parts:
        return Parts(self.graph, [KeyValues(keys, values)])


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
def decoder_graph(model: TextModel, precision: str, shortlist: bool = False) -> onnx.ModelProto:
    """One step: see `Step` in kutta.translate.cached for the inputs, `best` for the outputs.

    With a shortlist, the listed part of the output layer is an input too.
    """
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
                kept.append(Past(graph, caches, (N, B, heads, width)))
                caches += 1
            for _ in layer.sublayers("cross") if layer.cross is not None else []:
                inputs = [
                    graph.input(name, (B, heads, S, width)) for name in memory_names(memories)
                ]
                read.append(Parts(graph, [KeyValues(*inputs)], by_head=True))
                memories += 1
            layers.append(LayerState(read, kept))
        context = Context(
            bias=graph.input("bias", (B, 1, K, SEEN)),
            offsets=graph.input("offsets", (B, clip + 1, SEEN)) if clip else None,
            memory_bias=graph.input("memory_bias", (B, 1, 1, S)) if memories else None,
        )
        hidden = model.extend(tokens, positions, context, layers)
        rows = hidden.transpose(0, 1).flatten(0, 1)  # (B * K, d)
        if shortlist:
            best_listed(graph, rows)
        else:
            best(graph, rows, model.output_weight)
    return graph.model()
