"""Observing the step of every block, without changing the model.

A block's step is taken by its solver in `layer.solvers`. An Observer replaces each solver, takes
the same step and reports it.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kutta.data.batches import Batch
from kutta.model import Stack, TextModel
from kutta.model.stack import Layer
from kutta.ode import Solver
from kutta.ode.error import effective_times
from kutta.ode.solver import Field, History


@dataclass(frozen=True)
class Place:
    """Where a block is: its stack, its layer from 1, and the sublayers that it integrates."""

    stack: str
    layer: int
    sublayers: str


@dataclass(frozen=True)
class Seen:
    """An observed step: from y (T, B, d) and history to `after`.

    `one_step` is whether the method left the history unchanged, i.e. uses only y.
    """

    place: Place
    solver: Solver
    F: Field
    y: Tensor
    history: History
    after: Tensor
    one_step: bool


class Observer(Solver):
    """Takes the steps of another solver and calls `on_step` with each."""

    def __init__(self, solver: Solver, place: Place, on_step: Callable[[Seen], None]) -> None:
        super().__init__()
        self.solver, self.place, self.on_step = solver, place, on_step
        self.evaluations = solver.evaluations

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        after, later = self.solver.step(F, y, history)
        self.on_step(Seen(self.place, self.solver, F, y, history, after, later is history))
        return after, later


def stacks_of(model: nn.Module) -> dict[str, Stack]:
    """The stacks of a model by name: encoder and decoder, or the one of a language model."""
    return {name: child for name, child in model.named_children() if isinstance(child, Stack)}


def blocks_of(model: nn.Module) -> Iterator[tuple[Place, Layer, int]]:
    """Every block in the order of computation: its place, its layer, and its index in that."""
    for name, stack in stacks_of(model).items():
        for number, layer in enumerate(stack.each_layer(), start=1):
            for index, (block, _) in enumerate(layer.steps()):
                yield Place(name, number, "+".join(block.parts)), layer, index


def times_of(model: nn.Module) -> dict[Place, float]:
    """The time that each block's step covers: sum(gamma) for a Runge-Kutta block."""
    times: dict[Place, float] = {}
    for name, stack in stacks_of(model).items():
        solvers = [solver for layer in stack.each_layer() for _, solver in layer.steps()]
        places = [place for place, _, _ in blocks_of(model) if place.stack == name]
        covered = effective_times(solvers, stack.shape.settings.d_model)
        times |= dict(zip(places, covered, strict=True))
    return times


@contextmanager
def observing(model: nn.Module, on_step: Callable[[Seen], None]) -> Generator[None]:
    """Call `on_step` with every block's step; afterwards the model is restored."""
    before = [(layer, index, layer.solvers[index]) for _, layer, index in blocks_of(model)]
    for (place, layer, index), (_, _, solver) in zip(list(blocks_of(model)), before, strict=True):
        assert isinstance(solver, Solver)
        layer.solvers[index] = Observer(solver, place, on_step)
    try:
        yield
    finally:
        for layer, index, solver in before:
            layer.solvers[index] = solver


def watch(model: TextModel, batches: Iterable[Batch], on_step: Callable[[Seen], None]) -> None:
    """Run batches through a model without dropout and gradients; `on_step` gets every step."""
    model.eval()
    with observing(model, on_step), torch.no_grad():
        for batch in batches:
            model(batch.source, batch.target_in)
