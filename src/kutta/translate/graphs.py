"""Scoring continuations with the ONNX graphs of an exported model, by onnxruntime."""

import math
import threading
from functools import partial

import numpy as np

from kutta.data.tokenizer import PAD
from kutta.errors import InputError
from kutta.runtime.directory import Exported, Facts
from kutta.runtime.session import Session
from kutta.runtime.shortlist import Listed
from kutta.translate.cached import Cached, Sizes, Step
from kutta.translate.hypothesis import Continuations, Floats, Integers
from kutta.translate.keyvalues import Array


class GraphModel:
    """The graphs of an exported model, opened when they are first used."""

    def __init__(self, exported: Exported) -> None:
        self.exported = exported
        self._sessions: list[Session] = []
        self._opening = threading.Lock()

    @property
    def sessions(self) -> list[Session]:
        """The encoder, if there is one, and the decoder."""
        with self._opening:
            found = self._sessions
        return found or self.open(1)

    def open(self, threads: int) -> list[Session]:
        """Open the graphs with this many threads for a product, unless they are open so."""
        with self._opening:
            if not self._sessions or self._sessions[0].threads != threads:
                self._sessions = []  # let go of the weights before they are read again
                self._sessions = [Session(path, threads) for path in self.exported.graphs]
                _check_sizes(self.exported.facts, self._sessions[-1])
            return self._sessions

    def start(self, beam: int) -> "_Decoding":
        return _Decoding(self, beam)


def _check_sizes(facts: Facts, decoder: Session) -> None:
    """Compare what export.json says with the graph, before memory is taken for it."""
    numbers = range(facts.caches), range(facts.memories)
    axes = {f"{kind}.{n}": (2, 3) for kind in ("keys", "values") for n in numbers[0]}
    axes |= {f"memory_keys.{n}": (1, 2) for n in numbers[1]}
    axes |= {f"memory_values.{n}": (1, 3) for n in numbers[1]}  # of heads and their numbers
    found = {name: shape for name, shape in decoder.inputs.items() if "." in name}
    fits = found.keys() == axes.keys() and all(
        len(shape) == 4 and [shape[axis] for axis in axes[name]] == [facts.heads, facts.width]
        for name, shape in found.items()
    )
    if not fits:
        raise InputError(
            f"{decoder.path} has other caches than export.json says; export the run again."
        )


class _Decoding(Cached):
    """Decoding with the graphs of a model."""

    def __init__(self, model: GraphModel, beam: int) -> None:
        facts = model.exported.facts
        sizes = Sizes(facts.caches, facts.memories, facts.heads, facts.width, facts.clip)
        super().__init__(beam, sizes, partial(np.zeros, dtype=facts.cache_type))
        self.model = model
        pairs = [(f"keys.{n}", f"values.{n}") for n in range(facts.caches)]
        self.names = [name for pair in pairs for name in pair]
        pairs = [(f"memory_keys.{n}", f"memory_values.{n}") for n in range(facts.memories)]
        self.memory_names = [name for pair in pairs for name in pair]
        self.listed: Listed | None = None
        self.listed_of: object = None  # the sources that list these tokens

    def _read(self, source: Integers) -> list[Array]:
        return self.model.sessions[0].run({"source": source}, self.memory_names)

    def _run(self, step: Step) -> Continuations:
        facts = self.model.exported.facts
        listed = self._list()
        outputs = len(listed.ids) if listed else facts.outputs
        whole = step.count >= facts.vocabulary
        count = outputs if whole else min(step.count, outputs)
        room, filled = self.caches.following(len(step.tokens)), self.caches.filled
        bias, offsets, memory_bias = *_with_own_slot(step), step.memory_bias
        if self.caches.used == 0:
            bias, offsets = _with_one_slot(bias, offsets)
            filled = [np.zeros_like(new[:1]) for new in room]
        feeds = {
            "tokens": step.tokens,
            "positions": step.positions,
            "bias": bias,
            "count": np.array([count], np.int64),
            **dict(zip(self.names, filled, strict=True)),
            **dict(zip(self.memory_names, self.memories.arrays, strict=True)),
        }
        if listed:
            feeds |= listed.feeds
        if offsets is not None:
            feeds["offsets"] = offsets
        if memory_bias is not None:
            feeds["memory_bias"] = memory_bias
        new = dict(zip((f"new_{name}" for name in self.names), room, strict=True))
        values, ids, ends = self.model.sessions[-1].run(feeds, ("values", "ids", "ends"), new)
        if listed and whole:
            return _of_all(values, listed.ids, ends, facts.vocabulary)
        end = facts.vocabulary if whole else None
        ids = listed.ids[ids] if listed else ids
        return Continuations(values[:, :end], ids[:, :end], ends)

    def _list(self) -> Listed | None:
        """The tokens that the present sentences list, if the model has a shortlist."""
        shortlist = self.model.exported.shortlist
        if shortlist and self.listed_of is not self.sources:
            self.listed, self.listed_of = shortlist.listed(self.sources), self.sources
        return self.listed


def _of_all(values: Floats, ids: Integers, ends: Floats, vocabulary: int) -> Continuations:
    """The continuations of all tokens: those that are not listed are impossible."""
    real = np.isfinite(values).any(axis=0) | (ids != PAD)
    spread = np.full((len(values), vocabulary), -math.inf, np.float32)
    spread[:, ids[real]] = values[:, real]
    return Continuations(spread, np.tile(np.arange(vocabulary), (len(values), 1)), ends)


def _with_own_slot(step: Step) -> tuple[Floats, Floats | None]:
    """Bias and offsets with one slot for the K new ones, which each hypothesis sees as its own."""
    bias, offsets = step.bias, step.offsets
    end = bias.shape[3] - len(step.tokens) + 1
    bias = bias[..., :end].copy()
    bias[..., -1] = 0
    return bias, None if offsets is None else offsets[..., :end]


def _with_one_slot(bias: Floats, offsets: Floats | None) -> tuple[Floats, Floats | None]:
    """The same with one earlier slot, which nobody sees: onnxruntime cannot do without."""

    def after(array: Floats, number: float) -> Floats:
        one = np.full((*array.shape[:-1], 1), number, np.float32)
        return np.concatenate([one, array], axis=-1)

    return after(bias, -math.inf), None if offsets is None else after(offsets, 0.0)
