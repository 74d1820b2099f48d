"""Integrating y over depth: layers, their blocks, and a method for each block."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import cycle, repeat
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from kutta.model.admin import Admin
from kutta.model.attention import KeyValues
from kutta.model.dense import Dense
from kutta.model.field import (
    SUBLAYERS,
    Context,
    CrossAttentionField,
    Part,
    SelfAttentionField,
    Sublayer,
    compose,
)
from kutta.model.norm import make_norm
from kutta.model.shape import PLACEMENTS, Block, StackShape, blocks_of
from kutta.ode import GAMMAS, Solver, make_solver
from kutta.ode.solver import History

__all__ = ["PLACEMENTS", "Layer", "LayerState", "Stack", "StackShape"]


@dataclass
class LayerState:
    """What decoding keeps of a layer: projected memories, and a cache for each evaluation of F.

    A method of s stages evaluates self-attention s times per position, each time on other
    states, so it needs s caches. The memory is projected by each cross-attention that there is.
    """

    memories: list[KeyValues | None]
    caches: list[KeyValues] = field(default_factory=list[KeyValues])

    def select(self, rows: Tensor, same_sentences: bool) -> None:
        """Keep or reorder rows; the memory stays as it is where rows keep their sentence."""
        for cache in self.caches:
            cache.select(rows)
        for memory in self.memories:
            if memory is not None and not same_sentences:
                memory.select(rows)


class Layer(nn.Module):
    """One Transformer layer: its sublayers, and the solvers of the blocks they form.

    Parameters are named by sublayer, not by block, so weights fit every method and placement.
    Where stages have parameters of their own, those here are for the first evaluation of F in a
    block, and `stages` has the sublayers of the second ("2") and of later ones.
    With `recompute` the backward pass computes the layer again, stage by stage and with the same
    dropout, so that nothing but y is kept of it. `compiled` stands for `integrate` in training.
    """

    recompute = False
    generator: torch.Generator | None = None  # where its dropout draws from one of its own
    compiled: Callable[..., tuple[Tensor, History]] | None = None

    def __init__(self, shape: StackShape, index: int) -> None:
        super().__init__()
        self.blocks = blocks_of(shape)
        two_ffns = any("ffn_before" in block.parts for block in self.blocks)
        self.ffn_before = SUBLAYERS["ffn_before"](shape) if two_ffns else None
        self.san = SelfAttentionField(shape)
        self.cross = CrossAttentionField(shape) if shape.cross else None
        self.ffn = SUBLAYERS["ffn"](shape)
        self.post_norm = shape.norm == "post"
        self.solvers = nn.ModuleList(_solver(shape, block, index) for block in self.blocks)
        self.stages = nn.ModuleDict(self._later_stages(shape))
        self.sets = 1 + len(self.stages)  # of parameters

    def forward(
        self,
        y: Tensor,
        history: History,
        context: Context,
        memory: Tensor | None = None,
        state: LayerState | None = None,
    ) -> tuple[Tensor, History]:
        """y (T, B, d) -> (y', history) after all blocks of this layer; memory (S, B, d)."""
        inputs = (self, y, history, context, memory, state)
        if not torch.is_grad_enabled():  # decoding and validation have a new shape every time
            return Layer.integrate(*inputs)
        integrate = self.compiled or Layer.integrate
        if self.recompute:
            return cast(Any, checkpoint)(
                integrate, *inputs, use_reentrant=False, context_fn=self._draws
            )
        return integrate(*inputs)

    def integrate(
        self,
        y: Tensor,
        history: History,
        context: Context,
        memory: Tensor | None,
        state: LayerState | None,
    ) -> tuple[Tensor, History]:
        """All blocks of this layer, one after the other; shapes as in `forward`."""
        memories = state.memories if state else self._projected(memory)
        contexts = [replace(context, memory=projected) for projected in memories]
        caches = repeat(None) if state is None else iter(state.caches)
        for block, solver in self.steps():
            y, history = solver.step(self.field(block, contexts, caches), y, history)
            if self.post_norm:
                y = self.part(block.parts[-1]).norm(y)
        return y, history

    def _draws(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Around the layer and around its repetition: torch sees to its own generators alone."""
        again = nullcontext() if self.generator is None else _drawing_again(self.generator)
        return nullcontext(), again

    def start(self, rows: int, memory: Tensor | None) -> LayerState:
        """The state before the first position; memory (S, B, d)."""
        evaluations = sum(s.evaluations for block, s in self.steps() if "san" in block.parts)
        caches = [self.san.attention.empty_cache(rows) for _ in range(evaluations)]
        return LayerState(self._projected(memory), caches)

    def steps(self) -> Iterator[tuple[Block, Solver]]:
        """The blocks in order, each with its solver."""
        for block, solver in zip(self.blocks, self.solvers, strict=True):
            assert isinstance(solver, Solver)
            yield block, solver

    def part(self, name: str, evaluation: int = 1) -> Sublayer:
        """A sublayer by its name in Block.parts, with the parameters of an evaluation of F."""
        home = self if evaluation == 1 else self.stages[str(evaluation)]
        return cast(Sublayer, getattr(home, name))

    def sublayers(self, name: str) -> list[Sublayer]:
        """A sublayer by its name: one for all evaluations of F, or one for each."""
        several = any(name in block.parts for block in self.blocks if block.chosen)
        return [self.part(name, n) for n in range(1, (self.sets if several else 1) + 1)]

    def field(
        self, block: Block, contexts: Sequence[Context], caches: Iterator[KeyValues | None]
    ) -> Callable[[Tensor], Tensor]:
        """F of one block; its i-th evaluation takes the i-th parameters and the i-th cache.

        Where all evaluations have the same parameters, there is one set of them and one context.
        After the last evaluation of a step the first one follows, so F may be stepped again.
        """
        evaluations = range(1, (self.sets if block.chosen else 1) + 1)
        turns = cycle([(self._parts(block, n), contexts[n - 1]) for n in evaluations])
        attends = "san" in block.parts

        def F(y: Tensor) -> Tensor:
            parts, context = next(turns)
            increment = compose(parts, y, context, next(caches) if attends else None)
            if block.h != 1.0:
                increment = block.h * increment
            return y + increment if block.identity else increment

        return F

    def _parts(self, block: Block, evaluation: int) -> Sequence[Part]:
        """The sublayers of a block, in order; post-norm layers norm their sums and not these."""
        parts = [self.part(name, evaluation) for name in block.parts]
        return [part.inner for part in parts] if self.post_norm else parts

    def _projected(self, memory: Tensor | None) -> list[KeyValues | None]:
        """The memory (S, B, d) as each set of parameters sees it; None where it does not."""
        if self.cross is None or memory is None:
            return [None] * self.sets
        crosses = [cast(CrossAttentionField, cross) for cross in self.sublayers("cross")]
        seen = [cross.attention.keys_values(memory) for cross in crosses]
        return [*seen, *[None] * (self.sets - len(seen))]

    def _later_stages(self, shape: StackShape) -> dict[str, nn.ModuleDict]:
        """Sublayers of their own for all evaluations of F but the first, if it is so chosen."""
        if shape.stage_parameters == "shared":
            return {}
        chosen = [(block, solver) for block, solver in self.steps() if block.chosen]
        names = [name for block, _ in chosen for name in block.parts]
        return {
            str(number): nn.ModuleDict({name: SUBLAYERS[name](shape) for name in names})
            for number in range(2, max(solver.evaluations for _, solver in chosen) + 1)
        }


def _drawing_again(generator: torch.Generator) -> AbstractContextManager[None]:
    """Around work that is to draw what the generator is about to draw now."""
    drawn = generator.get_state()

    @contextmanager
    def again() -> Generator[None]:
        now = generator.get_state()
        generator.set_state(drawn)
        try:
            yield
        finally:
            generator.set_state(now)

    return again()


def _solver(shape: StackShape, block: Block, index: int) -> Solver:
    """The solver of one block of layer `index`."""
    if shape.init == "admin":
        return Admin(shape.d_model)
    method, gamma = (shape.method, shape.gamma) if block.chosen else ("euler", "tableau")
    return make_solver(
        method, gamma, index, start=shape.start, width=shape.d_model, tableau=shape.tableau
    )


class Stack(nn.Module):
    """`layers` layers in sequence and one final LayerNorm (post-norm layers end in their own)."""

    generator: torch.Generator | None = None  # where LayerDrop draws from one of its own

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(Layer(shape, index) for index in range(shape.layers))
        self._share()
        self.dense = Dense(shape) if shape.replicate == "release" else None
        post = shape.norm == "post"
        self.norm = nn.Identity() if post else make_norm(shape)

    def forward(
        self,
        y: Tensor,
        context: Context,
        memory: Tensor | None = None,
        states: list[LayerState] | None = None,
    ) -> Tensor:
        """y (T, B, d) -> (T, B, d). `memory` (S, B, d) is projected by each layer for itself."""
        y, history = self._connect(y, ())
        each_state = states or [None] * len(self.layers)
        for layer, state in zip(self.each_layer(), each_state, strict=True):
            if self._drops_layer():
                continue
            y, history = layer(y, history, context, memory, state)
            y, history = self._connect(y, history)
        return self.norm(y)

    def each_layer(self) -> Iterator[Layer]:
        """The layers, typed."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            yield layer

    def _connect(self, y: Tensor, history: History) -> tuple[Tensor, History]:
        """What the next layer is given: y, or with dense connections a mix of all before it."""
        return (y, history) if self.dense is None else self.dense(y, history)

    def _drops_layer(self) -> bool:
        """Whether training skips this layer (LayerDrop); without it nothing is drawn."""
        p = self.shape.layer_drop
        if not self.training or p == 0:
            return False
        return torch.rand((), device="cpu", generator=self.generator).item() < p

    def _share(self) -> None:
        """Make one object of what all layers are to have in common."""
        shape, layers = self.shape, list(self.each_layer())
        chosen = [solver for layer in layers for block, solver in layer.steps() if block.chosen]
        for layer in layers:
            if shape.share_layers:
                for name in (name for block in layer.blocks for name in block.parts):
                    setattr(layer, name, layers[0].part(name))
                layer.stages = layers[0].stages
            if shape.share_gamma and GAMMAS[shape.gamma].learned:
                layer.solvers = nn.ModuleList(
                    chosen[0] if block.chosen else solver for block, solver in layer.steps()
                )
