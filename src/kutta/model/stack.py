"""Integrating y over depth: layers, their blocks, and a method for each block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import repeat

from torch import Tensor, nn

from kutta.errors import InputError
from kutta.model.attention import KeyValues
from kutta.model.field import (
    NORM_EPS,
    Context,
    CrossAttentionField,
    FeedForwardField,
    SelfAttentionField,
    Sublayer,
    compose,
)
from kutta.ode import HISTORY_METHODS, Solver, make_solver
from kutta.ode.solver import Gamma, History

# Which sublayers form a block, in order, and whether the block takes the chosen method or stays
# a plain Euler step. In the decoder, cross-attention belongs to the attention part.
PLACEMENTS: dict[str, tuple[tuple[tuple[str, ...], bool], ...]] = {
    "san+ffn": ((("san", "ffn"), True),),
    "san/ffn": ((("san",), True), (("ffn",), True)),
    "san": ((("san",), True), (("ffn",), False)),
    "ffn": ((("san",), False), (("ffn",), True)),
}


@dataclass(frozen=True)
class StackShape:
    """The sizes and the method of a stack; `cross` makes it a decoder over a memory."""

    d_model: int
    ffn: int
    heads: int
    layers: int
    method: str = "euler"
    gamma: Gamma = "tableau"
    placement: str = "san+ffn"
    clip: int = 8
    dropout: float = 0.1
    attention_dropout: float = 0.1
    relu_dropout: float = 0.1
    cross: bool = False


@dataclass
class LayerState:
    """What decoding keeps of a layer: the projected memory, and a cache for each evaluation of F.

    A method of s stages evaluates self-attention s times per position, each time on other
    states, so it needs s caches.
    """

    memory: KeyValues | None
    caches: list[KeyValues] = field(default_factory=list[KeyValues])

    def select(self, rows: Tensor, same_sentences: bool) -> None:
        """Keep or reorder rows; the memory stays as it is where rows keep their sentence."""
        for cache in self.caches:
            cache.select(rows)
        if self.memory is not None and not same_sentences:
            self.memory.select(rows)


class Layer(nn.Module):
    """One Transformer layer: its sublayers, and the solvers of the blocks they form.

    Parameters are named by sublayer, not by block, so weights fit every method and placement.
    """

    def __init__(self, shape: StackShape, index: int) -> None:
        super().__init__()
        d, heads, drop, att = shape.d_model, shape.heads, shape.dropout, shape.attention_dropout
        self.san = SelfAttentionField(d, heads, shape.clip, drop, att)
        self.cross = CrossAttentionField(d, heads, drop, att) if shape.cross else None
        self.ffn = FeedForwardField(d, shape.ffn, drop, shape.relu_dropout)
        self.blocks: list[tuple[str, ...]] = []
        self.solvers = nn.ModuleList()
        for names, chosen in _blocks(shape):
            method = shape.method if chosen else "euler"
            self.blocks.append(names)
            self.solvers.append(make_solver(method, shape.gamma if chosen else "tableau", index))

    def forward(
        self, y: Tensor, history: History, context: Context, state: LayerState | None = None
    ) -> tuple[Tensor, History]:
        """y (T, B, d) -> (y', history) after all blocks of this layer."""
        caches = repeat(None) if state is None else iter(state.caches)
        for names, solver in self.steps():
            y, history = solver.step(self._field(names, context, caches), y, history)
        return y, history

    def start(self, rows: int, memory: Tensor | None) -> LayerState:
        """The state before the first position; memory (S, B, d)."""
        projected = (
            self.cross.attention.keys_values(memory) if self.cross and memory is not None else None
        )
        evaluations = sum(s.evaluations for names, s in self.steps() if "san" in names)
        return LayerState(
            projected, [self.san.attention.empty_cache(rows) for _ in range(evaluations)]
        )

    def steps(self) -> Iterator[tuple[tuple[str, ...], Solver]]:
        """The blocks in order: the names of their sublayers, and their solver."""
        for names, solver in zip(self.blocks, self.solvers, strict=True):
            assert isinstance(solver, Solver)
            yield names, solver

    def _field(
        self, names: tuple[str, ...], context: Context, caches: Iterator[KeyValues | None]
    ) -> Callable[[Tensor], Tensor]:
        """F of one block; the i-th evaluation of self-attention takes the i-th cache."""
        table: dict[str, Sublayer | None] = {"san": self.san, "cross": self.cross, "ffn": self.ffn}
        parts = [part for name in names if (part := table[name]) is not None]
        attends = "san" in names
        return lambda y: compose(parts, y, context, next(caches) if attends else None)


def _blocks(shape: StackShape) -> list[tuple[tuple[str, ...], bool]]:
    """The blocks of a layer of this shape."""
    blocks = [
        (tuple(n for name in names for n in _expand(name, shape.cross)), chosen)
        for names, chosen in PLACEMENTS[shape.placement]
    ]
    # Euler over a composed field is by definition one Euler step per sublayer. Taking them one
    # by one keeps the ordinary Transformer's order of additions, to the last bit.
    euler = shape.method == "euler" and shape.gamma != "learned"
    blocks = [
        (part, chosen)
        for names, chosen in blocks
        for part in ([(name,) for name in names] if euler or not chosen else [names])
    ]
    return blocks


def _expand(name: str, cross: bool) -> tuple[str, ...]:
    return ("san", "cross") if name == "san" and cross else (name,)


class Stack(nn.Module):
    """`layers` layers in sequence and one final LayerNorm."""

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        if shape.placement not in PLACEMENTS:
            raise InputError(
                f"There is no placement {shape.placement!r}; choose one of {', '.join(PLACEMENTS)}."
            )
        if shape.method in HISTORY_METHODS and shape.placement != "san+ffn":
            raise InputError(f"{shape.method} needs the placement san+ffn, not {shape.placement}.")
        if shape.d_model % shape.heads:
            raise InputError(
                f"The width {shape.d_model} is not a multiple of the {shape.heads} heads."
            )
        self.shape = shape
        self.layers = nn.ModuleList(Layer(shape, index) for index in range(shape.layers))
        self.norm = nn.LayerNorm(shape.d_model, eps=NORM_EPS)

    def forward(
        self,
        y: Tensor,
        context: Context,
        memory: Tensor | None = None,
        states: list[LayerState] | None = None,
    ) -> Tensor:
        """y (T, B, d) -> (T, B, d). `memory` (S, B, d) is projected by each layer for itself."""
        history: History = ()
        for index, layer in enumerate(self.each_layer()):
            state = states[index] if states is not None else None
            if state is not None:
                around = replace(context, memory=state.memory)
            elif layer.cross is not None and memory is not None:
                around = replace(context, memory=layer.cross.attention.keys_values(memory))
            else:
                around = context
            y, history = layer(y, history, around, state)
        return self.norm(y)

    def each_layer(self) -> Iterator[Layer]:
        """The layers, typed."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            yield layer
