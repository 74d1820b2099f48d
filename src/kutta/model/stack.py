"""Integrating y over depth: layers, their blocks, and a method for each block."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import cycle, repeat
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from kutta.model.attention import KeyValues
from kutta.model.field import (
    SUBLAYERS,
    Context,
    CrossAttentionField,
    SelfAttentionField,
    Sublayer,
    make_norm,
)
from kutta.model.shape import Block, StackShape, blocks_of
from kutta.ode import GAMMAS, Solver, make_solver
from kutta.ode.solver import Field, History, combine


@dataclass
class LayerState:
    """What decoding keeps of a layer: projected memories, and a cache for each evaluation of F.

    A method of s stages evaluates self-attention s times per position, each time on other
    states, so it needs s caches. The memory is projected by each cross-attention that there is.
    """

    memories: list[KeyValues]
    caches: list[KeyValues]

    def select(self, rows: Tensor, same_sentences: bool) -> None:
        """Keep or reorder rows; the memory stays as it is where rows keep their sentence."""
        for kept in self.caches if same_sentences else self.caches + self.memories:
            kept.select(rows)


class Admin(Solver):
    """y' = omega y + F(y), omega (d,) learned (ADMIN, Liu et al. 2020); LayerNorm follows."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.omega = nn.Parameter(torch.ones(d_model))  # the plain residual

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        return self.omega * y + F(y), history


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
        self.post_norm = shape.settings.norm == "post"
        self.solvers = nn.ModuleList(_solver(shape, block, index) for block in self.blocks)
        self.stages = nn.ModuleDict()
        if shape.settings.stage_parameters == "separate":
            chosen = [(block, solver) for block, solver in self.steps() if block.chosen]
            names = [name for block, _ in chosen for name in block.parts]
            for number in range(2, max(solver.evaluations for _, solver in chosen) + 1):
                own = {name: SUBLAYERS[name](shape) for name in names}
                self.stages[str(number)] = nn.ModuleDict(own)

    def forward(self, *inputs: Any) -> tuple[Tensor, History]:
        """`integrate`; in training it may be compiled, and repeated for the backward pass."""
        if not torch.is_grad_enabled():  # decoding and validation have a new shape every time
            return self.integrate(*inputs)
        integrate = self.compiled or Layer.integrate
        if self.recompute:
            return cast(Any, checkpoint)(
                integrate, self, *inputs, use_reentrant=False, context_fn=self._draws
            )
        return integrate(self, *inputs)

    def integrate(
        self,
        y: Tensor,
        history: History,
        context: Context,
        memory: Tensor | None = None,
        state: LayerState | None = None,
    ) -> tuple[Tensor, History]:
        """y (T, B, d) -> (y', history) after all blocks of this layer; memory (S, B, d)."""
        memories = state.memories if state else self.projected(memory)
        contexts = [replace(context, memory=projected) for projected in memories] or [context]
        caches = iter(state.caches) if state else repeat(None)
        for block, solver in self.steps():
            y, history = solver.step(self.field(block, contexts, caches), y, history)
            if self.post_norm:
                y = self.sublayers(block.parts[-1])[0].norm(y)
        return y, history

    def field(
        self, block: Block, contexts: Sequence[Context], caches: Iterator[KeyValues | None]
    ) -> Field:
        """F of one block: u = F1(y), then u + F2(y + u) and so on over its sublayers.

        The i-th evaluation of F takes the i-th parameters, context and cache, where there are
        several. After the last one of a step the first follows, so F may be stepped again.
        """
        parameters = zip(*(self.sublayers(name) for name in block.parts), strict=True)
        turns = cycle([(parts, contexts[n % len(contexts)]) for n, parts in enumerate(parameters)])
        attends = "san" in block.parts

        def F(y: Tensor) -> Tensor:
            (first, *rest), context = next(turns)
            cache = next(caches) if attends else None
            increment = first(y, context, cache)
            for sublayer in rest:
                increment = increment + sublayer(y + increment, context, cache)
            if block.h != 1.0:
                increment = block.h * increment
            return y + increment if block.identity else increment

        return F

    def start(self, rows: int, memory: Tensor | None) -> LayerState:
        """The state before the first position; memory (S, B, d)."""
        caches = [self.san.attention.empty_cache(rows) for _ in range(self.evaluations)]
        return LayerState(self.projected(memory), caches)

    @property
    def evaluations(self) -> int:
        """How often a step evaluates self-attention: that many caches are needed."""
        return sum(s.evaluations for block, s in self.steps() if "san" in block.parts)

    def steps(self) -> Iterator[tuple[Block, Solver]]:
        """The blocks in order, each with its solver."""
        return zip(self.blocks, cast(Iterable[Solver], self.solvers), strict=True)

    def sublayers(self, name: str) -> list[Sublayer]:
        """A sublayer by its name in Block.parts: one for all evaluations of F, or one for each."""
        homes = [self, *(stage for stage in self.stages.values() if hasattr(stage, name))]
        return [cast(Sublayer, getattr(home, name)) for home in homes]

    def projected(self, memory: Tensor | None) -> list[KeyValues]:
        """The memory (S, B, d) as each cross-attention of this layer sees it."""
        if self.cross is None or memory is None:
            return []
        crosses = cast(list[CrossAttentionField], self.sublayers("cross"))
        return [cross.attention.keys_values(memory) for cross in crosses]

    def _draws(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Around the layer and around its repetition; torch restores only its own generators."""
        if self.generator is None:
            return nullcontext(), nullcontext()
        return nullcontext(), _drawing_from(self.generator, self.generator.get_state())


@contextmanager
def _drawing_from(generator: torch.Generator, state: Tensor) -> Generator[None]:
    """Draw from an earlier state of a generator, and then go back to the present one."""
    now = generator.get_state()
    generator.set_state(state)
    try:
        yield
    finally:
        generator.set_state(now)


def _solver(shape: StackShape, block: Block, index: int) -> Solver:
    """The solver of one block of layer `index`."""
    if shape.settings.init == "admin":
        return Admin(shape.settings.d_model)
    method, gamma = (shape.method, shape.gamma) if block.chosen else ("euler", "tableau")
    return make_solver(
        method,
        gamma,
        index,
        start=shape.settings.gamma_start,
        width=shape.settings.d_model,
        tableau=shape.settings.own_tableau(),
    )


class Dense(nn.Module):
    """What enters a layer is a learned mix of all that came before it (DLCL, Wang et al. 2019).

    The authors' release has it around every layer. x_0 = y and x_l = LN_l(what layer l gave); the
    layers are numbered from 1, and layer t + 1, or the final LayerNorm, is given
    sum_{l<=t} W_{t,l} x_l. The row W_t starts at the mean.
    """

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.norms = nn.ModuleList(make_norm(shape) for _ in range(shape.layers))
        self.rows = nn.ParameterList(
            nn.Parameter(torch.full((t + 1,), 1 / (t + 1))) for t in range(shape.layers + 1)
        )

    def forward(self, y: Tensor, history: History) -> tuple[Tensor, History]:
        """y (T, B, d) and (x_0, ..., x_{t-1}) -> what comes next, and (x_0, ..., x_t)."""
        t = len(history)
        history = (*history, self.norms[t - 1](y) if t else y)
        first, *rest = self.rows[t].unbind()
        return combine(first * history[0], rest, history[1:]), history


class Stack(nn.Module):
    """`layers` layers in sequence and one final LayerNorm (post-norm layers end in their own)."""

    generator: torch.Generator | None = None  # where LayerDrop draws from one of its own

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(Layer(shape, index) for index in range(shape.layers))
        self._share()
        self.dense = Dense(shape) if shape.settings.replicate == "release" else None
        self.norm = nn.Identity() if shape.settings.norm == "post" else make_norm(shape)

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
        return iter(cast(Iterable[Layer], self.layers))

    def _connect(self, y: Tensor, history: History) -> tuple[Tensor, History]:
        """What the next layer is given: y, or with dense connections a mix of all before it."""
        return (y, history) if self.dense is None else self.dense(y, history)

    def _drops_layer(self) -> bool:
        """Whether training skips this layer (LayerDrop); without it nothing is drawn."""
        p = self.shape.settings.layer_drop
        if not self.training or p == 0:
            return False
        return torch.rand((), device="cpu", generator=self.generator).item() < p

    def _share(self) -> None:
        """Make one object of what all layers are to have in common."""
        shape, layers = self.shape, list(self.each_layer())
        chosen = [solver for layer in layers for block, solver in layer.steps() if block.chosen]
        for layer in layers:
            if shape.settings.share_layers:
                for name, module in layers[0].named_children():
                    if name != "solvers":
                        setattr(layer, name, module)
            if shape.settings.share_gamma and GAMMAS[shape.gamma].learned:
                layer.solvers = nn.ModuleList(
                    chosen[0] if block.chosen else solver for block, solver in layer.steps()
                )
