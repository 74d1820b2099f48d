"""Scoring continuations with the programs of an exported model, by the kernels in C."""

import ctypes
import math
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kutta.data.tokenizer import PAD
from kutta.errors import InputError
from kutta.runtime import kernels
from kutta.runtime.directory import Exported
from kutta.runtime.kernels import Weights, address, library
from kutta.runtime.program import PROGRAM, Ready, Shape, read_programs
from kutta.translate.cached import Cached, Sizes, Step
from kutta.translate.hypothesis import Continuations, Floats, Integers
from kutta.translate.keyvalues import Array

ROWS = 256  # tokens of sources that are read together: their activations fit the cache


def obstacle(folder: Path) -> str:
    """Why the kernels cannot run an exported model here; empty if they can."""
    return kernels.obstacle() if (folder / PROGRAM).is_file() else "the model has no program"


class NativeModel:
    """The programs of an exported model; several threads may run them at once."""

    def __init__(self, exported: Exported) -> None:
        facts = exported.facts
        self.exported, self.facts = exported, facts
        self.sizes = Sizes(facts.caches, facts.memories, facts.heads, facts.width, facts.clip)
        self.programs = read_programs(exported.path, exported.weights, Shape.of(facts))
        self._waves = sinusoids(64, facts.heads * facts.width)
        self._of_thread = threading.local()

    def scratch(self, size: int) -> NDArray[np.uint8]:
        """Memory for what a call computes, which a thread keeps for the next one."""
        found: NDArray[np.uint8] | None = getattr(self._of_thread, "scratch", None)
        if found is None or len(found) < size:
            found = self._of_thread.scratch = np.empty(size * 5 // 4, np.uint8)
        return found

    def waves(self, positions: int) -> Floats:
        """The sinusoids of at least so many positions (P, d)."""
        if positions > len(self._waves):
            self._waves = sinusoids(2 * positions, self._waves.shape[1])
        return self._waves

    def open(self, threads: int) -> None:
        """Nothing is left to do: a product has the thread of its worker."""

    def start(self, beam: int) -> "_Decoding":
        return _Decoding(self, beam)


def sinusoids(positions: int, width: int) -> Floats:
    """Sines, then cosines, as in kutta/model/decoding.py: (P, width)."""
    half = width // 2
    steps = np.arange(half, dtype=np.float32)
    rates = np.exp(steps * np.float32(-math.log(10000.0) / max(half - 1, 1)))
    angles = np.arange(positions, dtype=np.float32)[:, None] * rates
    waves = [np.sin(angles), np.cos(angles), np.zeros((positions, width % 2), np.float32)]
    return np.ascontiguousarray(np.concatenate(waves, axis=1), np.float32)


class _Decoding(Cached):
    """Decoding with the programs of a model."""

    def __init__(self, model: NativeModel, beam: int) -> None:
        zeros = partial(np.zeros, dtype=model.facts.cache_type)
        super().__init__(beam, model.sizes, zeros, at_once=ROWS, by_sentence=True)
        self.model, self.facts = model, model.facts
        self.listed: tuple[Integers, Weights] | None = None
        self.listed_of: object = None  # the sources that list these tokens

    def _read(self, source: Integers) -> list[Array]:
        sentences, width = source.shape
        lengths = width - np.argmax(source[:, ::-1] != PAD, axis=1)
        starts: Integers = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        tokens = source[np.arange(width) < lengths[:, None]]
        facts, shape = self.facts, (sentences, self.facts.heads)
        shapes = (*shape, facts.width, width), (*shape, width, facts.width)
        made = [np.zeros(one, facts.cache_type) for _ in range(facts.memories) for one in shapes]
        waves, places = self.model.waves(width), _places(made)
        call = kernels.Call(
            sentences=sentences,
            rows=len(tokens),
            source=width,
            starts=address(starts),
            tokens=address(tokens),
            waves=address(waves),
            memories=ctypes.addressof(places),
        )
        self._compute(self.model.programs["encoder"], tokens, call)
        return made

    def _run(self, step: Step) -> Continuations:
        hypotheses, sentences = step.tokens.shape
        rows, facts = hypotheses * sentences, self.facts
        ids, weights = self._list()
        outputs = facts.vocabulary if ids is None else len(ids)
        count = outputs if step.count >= facts.vocabulary else min(step.count, outputs)
        tokens, seen = step.tokens.T.copy(), np.ascontiguousarray(step.seen)
        starts = np.arange(0, rows + 1, hypotheses, dtype=np.int64)
        waves = self.model.waves(int(step.positions.max(initial=0)) + 1)
        values, ends = np.empty((rows, count), np.float32), np.empty(rows, np.float32)
        found = np.empty((rows, count), np.int64)
        caches, memories = _places(self.caches.arrays), _places(self.memories.arrays)
        positions, distances, lengths = (
            None if one is None else np.ascontiguousarray(one, np.int64)
            for one in (step.positions, step.distances, step.lengths)
        )
        call = kernels.Call(
            sentences=sentences,
            rows=rows,
            used=self.caches.used,
            capacity=len(self.caches.arrays[0]),
            slots=seen.shape[2],
            source=self.memories.width,
            count=count,
            outputs=outputs,
            starts=address(starts),
            tokens=address(tokens),
            positions=address(positions),
            lengths=address(lengths),
            waves=address(waves),
            seen=address(seen),
            distances=address(distances),
            caches=ctypes.addressof(caches),
            memories=ctypes.addressof(memories),
            values=address(values),
            ids=address(found),
            ends=address(ends),
        )
        if weights:
            call.listed = ctypes.pointer(weights.matrix)
        self._compute(self.model.programs["decoder"], tokens, call)
        if ids is None:
            return Continuations(values, found, ends)
        if step.count >= facts.vocabulary:
            return _of_all(values, ids, ends, facts.vocabulary)
        return Continuations(values, ids[found], ends)

    def _compute(self, ready: Ready, tokens: Integers, call: kernels.Call) -> None:
        if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < ready.tokens:
            path = self.model.exported.path / PROGRAM
            raise InputError(f"{path} has fewer embeddings than tokens; export the run again.")
        scratch = self.model.scratch(library().kutta_scratch(ready.program, call))
        call.scratch = address(scratch)
        library().kutta_run(ready.program, call)

    def _list(self) -> tuple[Integers | None, Weights | None]:
        """The tokens that the present sentences list, and their part of the output layer."""
        shortlist, output = self.model.exported.shortlist, self.model.programs["decoder"].output
        if shortlist is None or output is None:
            return None, None
        if self.listed is None or self.listed_of is not self.sources:
            ids = shortlist.ids(self.sources)
            self.listed, self.listed_of = (ids, output.chosen(ids)), self.sources
        return self.listed


def _places(arrays: list[Any]) -> "ctypes.Array[ctypes.c_void_p]":
    """The places of arrays, one after another."""
    return (ctypes.c_void_p * max(len(arrays), 1))(*(array.ctypes.data for array in arrays))


def _of_all(values: Floats, ids: Integers, ends: Floats, vocabulary: int) -> Continuations:
    """The continuations of all tokens: those that are not listed are impossible."""
    spread = np.full((len(values), vocabulary), -math.inf, np.float32)
    spread[:, ids] = values
    return Continuations(spread, np.tile(np.arange(vocabulary), (len(values), 1)), ends)
