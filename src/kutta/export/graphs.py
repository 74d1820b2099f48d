"""The two graphs of a model: the encoder, and one step of the decoder."""

from typing import ClassVar

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

K, B, N, S, SEEN = VARYING.values()  # SEEN: slots, with a hypothesis' own
FIRST = [2, 0, 1, 3]  # (B, H, K, ...) with hypotheses first


class Seen(Slots):
    """Slots in a graph, of which none is copied: (S, B, H, d_h), as self-attention has them.

    `own` are the keys and values (K, B, H, d_h) of the present step, each seen by its hypothesis
    alone. They are the last of the slots.
    """

    by_key: ClassVar[dict[str, int]] = {"transBatchB": 1, "transB": 1}  # products with keys
    by_value: ClassVar[dict[str, int]] = {"transBatchB": 1}  # and with values

    def __init__(self, graph: Tracer, kv: KeyValues, own: KeyValues | None = None) -> None:
        super().__init__(kv.keys, kv.values)
        self.graph, self.own = graph, own

    def attend(self, q: Tensor, bias: Tensor) -> Tensor:
        graph, (count, sentences, heads, width) = self.graph, q.shape
        # onnxruntime makes a single number a factor of the product, which is then much slower for a
        # single hypothesis. It leaves a vector alone.
        scale = graph.constant(np.full(width, width**-0.5, np.float32))
        query = graph.node("Mul", [graph.name(q), scale])
        # Sentences and heads come before hypotheses and slots without a copy: (B, H, K, S).
        scores = self._product(query, graph.name(self.keys), transBatchA=1, **self.by_key)
        if self.own is not None:
            scores = graph.node("Concat", [scores, self._own_scores(query, self.own)], axis=3)
        logits = graph.node("Add", [scores, graph.name(bias)])
        weights = graph.node("Softmax", [logits], axis=-1)
        of_own = ""
        if self.own is not None:
            weights, of_own = self._cut(weights)
        attended = self._product(weights, graph.name(self.values), **self.by_value)
        total = graph.node("Transpose", [attended], perm=FIRST)  # (K, B, H, d_h)
        if self.own is not None:
            weight = graph.node("Transpose", [of_own], perm=FIRST)
            part = graph.node("Mul", [weight, graph.name(self.own.values)])
            total = graph.node("Add", [total, part])
        shape = graph.constant(np.array([0, 0, heads * width]))
        name = graph.node("Reshape", [total, shape])
        return graph.symbol(name, (count, sentences, heads * width))

    def _product(self, a: str, b: str, **attributes: int) -> str:
        return self.graph.node("FusedMatMul", [a, b], MICROSOFT, **attributes)

    def _own_scores(self, query: str, own: KeyValues) -> str:
        """The products of queries with the keys of the same hypothesis: (B, H, K, 1)."""
        products = self.graph.node("Mul", [query, self.graph.name(own.keys)])
        axis = self.graph.constant(np.array([3]))
        sums = self.graph.node("ReduceSum", [products, axis], keepdims=1)
        return self.graph.node("Transpose", [sums], perm=[1, 2, 0, 3])

    def _cut(self, weights: str) -> list[str]:
        """The weights of earlier slots and that of a hypothesis' own."""
        graph, axis = self.graph, self.graph.constant(np.array([3]))
        slots, zero = graph.shape([N]), graph.constant(np.array([0]))
        end = graph.constant(np.array([2**62]))
        return [
            graph.node("Slice", [weights, zero, slots, axis]),
            graph.node("Slice", [weights, slots, end, axis]),
        ]


class Memory(Seen):
    """The source in a graph, as products want it: keys (B, H, d_h, S), values (B, H, S, d_h)."""

    by_key: ClassVar[dict[str, int]] = {}
    by_value: ClassVar[dict[str, int]] = {}


class Past(KeyValues):
    """A cache in a graph: an input of earlier slots; the new ones become outputs."""

    def __init__(self, graph: Tracer, number: int, shape: tuple[int, ...]) -> None:
        self.graph, self.number, self.kept = graph, number, graph.products.kept
        names = cache_names(number)
        super().__init__(*(graph.input(name, shape, self.kept).float() for name in names))

    def append(self, keys: Tensor, values: Tensor) -> Seen:
        for name, value in zip(cache_names(self.number), (keys, values), strict=True):
            self.graph.output(f"new_{name}", value.to(self.kept))
        return Seen(self.graph, self, KeyValues(keys, values))


class Whole(KeyValues):
    """No cache: all positions are given at once, as in the encoder."""

    def __init__(self, graph: Tracer) -> None:
        self.graph = graph

    def append(self, keys: Tensor, values: Tensor) -> Seen:
        return Seen(self.graph, KeyValues(keys, values))


def cache_names(number: int) -> tuple[str, str]:
    """The inputs of a cache; the outputs are the same after "new_"."""
    return f"keys.{number}", f"values.{number}"


def memory_names(number: int) -> tuple[str, str]:
    """The outputs of the encoder and inputs of the decoder of a projected memory."""
    return f"memory_keys.{number}", f"memory_values.{number}"


@torch.no_grad()
def encoder_graph(model: TranslationModel, precision: str) -> onnx.ModelProto:
    """source (B, S) -> keys (B, H, d_h, S) and values (B, H, S, d_h) of every cross-attention."""
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
            keys, values = memory_names(number)
            graph.output(keys, kv.keys.permute(1, 2, 3, 0).to(graph.products.kept))
            graph.output(values, kv.values.permute(1, 2, 0, 3).to(graph.products.kept))
    return graph.model()


@torch.no_grad()
def decoder_graph(model: TextModel, precision: str, shortlist: bool = False) -> onnx.ModelProto:
    """One step: see `Step` in kutta.translate.cached for the inputs, `best` for the outputs.

    Of the K slots of the step a hypothesis sees its own, so bias and offsets have one column for
    them. With a shortlist, the listed part of the output layer is an input too.
    """
    graph = Tracer(model, PRODUCTS[precision]())
    settings = model.decoder.shape.settings
    heads, clip = settings.heads, settings.relative_positions
    width, dtype = settings.d_model // heads, graph.products.kept
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
                keys, values = memory_names(memories)
                kv = KeyValues(
                    graph.input(keys, (B, heads, width, S), dtype).float(),
                    graph.input(values, (B, heads, S, width), dtype).float(),
                )
                read.append(Memory(graph, kv))
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
