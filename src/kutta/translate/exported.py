"""Scoring continuations with an exported model, in onnxruntime."""

import math
import threading
from dataclasses import replace

import numpy as np

from kutta.errors import InputError
from kutta.runtime.directory import Exported, Facts
from kutta.runtime.session import Session
from kutta.translate.ancestors import Array
from kutta.translate.cached import Cached, Sizes, Step
from kutta.translate.hypothesis import Continuations, Floats, Integers


class ExportedModel:
    """The log-probabilities of an exported model."""

    def __init__(self, exported: Exported) -> None:
        self.exported = exported
        self._sessions: list[Session] = []
        self._opening = threading.Lock()

    @property
    def vocabulary(self) -> int:
        return self.exported.facts.vocabulary

    @property
    def sessions(self) -> list[Session]:
        """The encoder, if there is one, and the decoder; opened when first used."""
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


def on_cpu(device: object) -> bool:
    """Whether a device is, or may be, the CPU."""
    return str(device) in ("auto", "cpu")


def check_device(device: object) -> None:
    """Reject a device that an exported model cannot use."""
    if not on_cpu(device):
        raise InputError(
            f"An exported model runs on the CPU, not on {device}; use --device cpu, or the run."
        )


def _check_sizes(facts: Facts, decoder: Session) -> None:
    """Compare what export.json says with the graph, before memory is taken for it."""
    kept = [f"{kind}.{n}" for kind in ("keys", "values") for n in range(facts.caches)]
    read = [f"memory_{kind}.{n}" for kind in ("keys", "values") for n in range(facts.memories)]
    found = {name: shape for name, shape in decoder.inputs.items() if "." in name}
    sizes = [(shape[1], shape[3]) for shape in found.values() if len(shape) == 4]
    if found.keys() != {*kept, *read} or sizes != [(facts.heads, facts.width)] * len(found):
        raise InputError(
            f"{decoder.path} has other caches than export.json says; export the run again."
        )


class _Decoding(Cached):
    """Decoding with the graphs of a model."""

    def __init__(self, model: ExportedModel, beam: int) -> None:
        facts = model.exported.facts
        sizes = Sizes(facts.caches, facts.memories, facts.heads, facts.width, facts.clip)
        super().__init__(beam, sizes, _zeros)
        self.model = model
        pairs = [(f"keys.{n}", f"values.{n}") for n in range(facts.caches)]
        self.names = [name for pair in pairs for name in pair]
        pairs = [(f"memory_keys.{n}", f"memory_values.{n}") for n in range(facts.memories)]
        self.memory_names = [name for pair in pairs for name in pair]

    def _read(self, source: Integers) -> list[Array]:
        return self.model.sessions[0].run({"source": source}, self.memory_names)

    def _run(self, step: Step) -> Continuations:
        used, beam, facts = self.caches.used, self.beam, self.model.exported.facts
        step = _with_unused(step, used, self.caches.capacity)
        whole = step.count >= facts.vocabulary
        count = facts.outputs if whole else step.count
        feeds = {
            "tokens": step.tokens,
            "positions": step.positions,
            "bias": step.bias,
            "count": np.array([count], np.int64),
            **dict(zip(self.names, self.caches.arrays, strict=True)),
            **dict(zip(self.memory_names, self.memories.arrays, strict=True)),
        }
        if step.offsets is not None:
            feeds["offsets"] = step.offsets
        if step.memory_bias is not None:
            feeds["memory_bias"] = step.memory_bias
        outputs = ["values", "ids", "ends", *(f"new_{name}" for name in self.names)]
        values, ids, ends, *new = self.model.sessions[-1].run(feeds, outputs)
        for array, slots in zip(self.caches.arrays, new, strict=True):
            array[:, :, used : used + beam] = slots
        end = facts.vocabulary if whole else None
        return Continuations(values[:, :end], ids[:, :end], ends)


def _with_unused(step: Step, used: int, capacity: int) -> Step:
    """The step with the slots that are not filled yet before its own; nobody sees them.

    A graph is given whole buffers, as a part of them would have to be copied.
    """

    def spread(array: Floats, number: float) -> Floats:
        unused = np.full((*array.shape[:-1], capacity - used), number, np.float32)
        return np.concatenate([array[..., :used], unused, array[..., used:]], axis=-1)

    offsets = None if step.offsets is None else spread(step.offsets, 0.0)
    return replace(step, bias=spread(step.bias, -math.inf), offsets=offsets)


def _zeros(shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, np.float32)
