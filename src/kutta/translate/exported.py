"""Scoring continuations with an exported model, in onnxruntime."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kutta.errors import InputError
from kutta.runtime.directory import Exported
from kutta.runtime.session import Session
from kutta.translate.ancestors import Array, Arrays
from kutta.translate.cached import Cached, Sizes, Step
from kutta.translate.hypothesis import Continuations, Integers


@dataclass(frozen=True)
class ExportedModel:
    """The log-probabilities of an exported model, with graphs of `threads` threads."""

    exported: Exported
    threads: int = 1

    @property
    def vocabulary(self) -> int:
        return self.exported.facts.vocabulary

    @cached_property
    def sessions(self) -> list[Session]:
        """The encoder, if there is one, and the decoder; opened when first used."""
        return [Session(path, self.threads) for path in self.exported.graphs]

    def start(self, beam: int) -> "_Decoding":
        return _Decoding(self, beam)


def check_device(device: object) -> None:
    """Reject a device that an exported model cannot use."""
    if str(device) not in ("auto", "cpu"):
        raise InputError(
            f"An exported model runs on the CPU, not on {device}; use --device cpu, or the run."
        )


class _Decoding(Cached):
    """Decoding with the graphs of a model."""

    def __init__(self, model: ExportedModel, beam: int) -> None:
        facts = model.exported.facts
        sizes = Sizes(facts.caches, facts.memories, facts.heads, facts.width, facts.clip)
        super().__init__(beam, sizes, Arrays(_empty, _take))
        self.model = model
        pairs = [(f"keys.{n}", f"values.{n}") for n in range(facts.caches)]
        self.names = [name for pair in pairs for name in pair]
        pairs = [(f"memory_keys.{n}", f"memory_values.{n}") for n in range(facts.memories)]
        self.memory_names = [name for pair in pairs for name in pair]

    def _read(self, source: Integers) -> list[Array]:
        return self.model.sessions[0].run({"source": source}, self.memory_names)

    def _run(self, step: Step) -> Continuations:
        used, beam, facts = self.caches.used, self.beam, self.model.exported.facts
        past = [array[:used] for array in self.caches.arrays]
        if used == 0:  # a product over no slots is not defined everywhere: one that nobody sees
            past = [np.zeros((1, *array.shape[1:]), np.float32) for array in past]
            step = _with_a_slot(step)
        whole = step.count >= facts.vocabulary
        count = facts.outputs if whole else step.count
        feeds = {
            "tokens": step.tokens,
            "positions": step.positions,
            "bias": step.bias,
            "count": np.array([count], np.int64),
            **dict(zip(self.names, past, strict=True)),
            **dict(zip(self.memory_names, self.memories.arrays, strict=True)),
        }
        if step.offsets is not None:
            feeds["offsets"] = step.offsets
        if step.memory_bias is not None:
            feeds["memory_bias"] = step.memory_bias
        outputs = ["values", "ids", "ends", *(f"new_{name}" for name in self.names)]
        values, ids, ends, *new = self.model.sessions[-1].run(feeds, outputs)
        for array, slots in zip(self.caches.arrays, new, strict=True):
            array[used : used + beam] = slots
        end = facts.vocabulary if whole else None
        return Continuations(values[:, :end], ids[:, :end], ends)


def _with_a_slot(step: Step) -> Step:
    """The step with one more slot before the others, which nobody sees."""
    unseen = np.full((*step.bias.shape[:3], 1), -math.inf, np.float32)
    offsets = step.offsets
    if offsets is not None:
        offsets = np.concatenate([np.zeros_like(offsets[:, :, :1]), offsets], axis=2)
    return replace(step, bias=np.concatenate([unseen, step.bias], axis=3), offsets=offsets)


def _empty(shape: tuple[int, ...]) -> Array:
    return np.empty(shape, np.float32)


def _take(array: Array, rows: Integers, out: Array) -> None:
    np.take(array, rows, axis=0, out=out, mode="clip")
