"""What a stack is made of, as data: its sizes, its method, and which sublayers form a block."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kutta.errors import InputError
from kutta.ode import HISTORY_METHODS, ButcherTableau, Gamma, stages_of


class Block(NamedTuple):
    """Sublayers that one step integrates, in order.

    `chosen` blocks take the chosen method, others a plain Euler step. F is scaled by the step
    size h. `identity` makes it y + F(y), the layer's whole output, as in the authors' release.
    """

    parts: tuple[str, ...]
    chosen: bool = True
    h: float = 1.0
    identity: bool = False


# In the decoder, cross-attention belongs to the attention part.
PLACEMENTS: dict[str, tuple[Block, ...]] = {
    "san+ffn": (Block(("san", "ffn")),),
    "san/ffn": (Block(("san",)), Block(("ffn",))),
    "san": (Block(("san",)), Block(("ffn",), chosen=False)),
    "ffn": (Block(("san",), chosen=False), Block(("ffn",))),
    # Strang splitting of dy/dt = SAN(y) + FFN(y), with an FFN of its own for each half.
    "macaron": (Block(("ffn_before",), h=0.5), Block(("san",)), Block(("ffn",), h=0.5)),
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
    start: str = "ones"
    share_gamma: bool = False
    tableau: ButcherTableau | None = None
    replicate: str = "paper"
    norm: str = "pre"
    init: str = "xavier"
    share_layers: bool = False
    stage_parameters: str = "shared"
    layer_drop: float = 0.0


def blocks_of(shape: StackShape) -> list[Block]:
    """The blocks of a layer of this shape, in order."""
    blocks = [
        block._replace(parts=tuple(n for name in block.parts for n in _expand(name, shape.cross)))
        for block in PLACEMENTS[shape.placement]
    ]
    # Euler over a composed field is by definition one Euler step per sublayer. Taking them one
    # by one keeps the ordinary Transformer's order of additions, to the last bit.
    plain = shape.method == "euler" and shape.gamma in ("tableau", "ones")
    blocks = [
        block._replace(parts=parts)
        for block in blocks
        for parts in ([(n,) for n in block.parts] if plain or not block.chosen else [block.parts])
    ]
    # The release applies a layer once where the method is Euler, and that is y + F(y) already.
    identity = shape.replicate == "release" and shape.method != "euler"
    return [block._replace(identity=identity) for block in blocks]


def _expand(name: str, cross: bool) -> tuple[str, ...]:
    return ("san", "cross") if name == "san" and cross else (name,)


def check(shape: StackShape) -> None:
    """Refuse a shape that cannot be built."""
    for wrong, sentence in _mistakes(shape):
        if wrong:
            raise InputError(sentence)


def _mistakes(shape: StackShape) -> Iterator[tuple[bool, str]]:
    """What does not go together, each with the sentence to say."""
    method, placement = shape.method, shape.placement
    release = shape.replicate == "release"
    whole_layers = release or method in HISTORY_METHODS
    who = "replicate = release" if release else method
    yield (
        placement not in PLACEMENTS,
        f"There is no placement {placement!r}; choose one of {', '.join(PLACEMENTS)}.",
    )
    yield (
        whole_layers and placement != "san+ffn",
        f"{who} needs the placement san+ffn, not {placement}.",
    )
    yield (
        whole_layers and shape.layer_drop > 0,
        f"{who} looks back over every layer, so layer_drop must be 0, not {shape.layer_drop}.",
    )
    yield (
        release and shape.stage_parameters != "shared",
        f"{who} takes a whole layer as its stage, so stage_parameters must be shared.",
    )
    yield (
        bool(shape.d_model % shape.heads),
        f"The width {shape.d_model} is not a multiple of the {shape.heads} heads.",
    )
    yield (
        release and (stages_of(method, shape.tableau) is None or shape.norm != "pre"),
        f"{who} needs a Runge-Kutta method and norm = pre, not {method} and {shape.norm}.",
    )
    yield (
        shape.norm == "post" and (method, shape.gamma) != ("euler", "tableau"),
        f"norm = post is not a step of an ODE; it needs euler, not {method} ({shape.gamma}).",
    )
    yield (
        shape.init == "admin" and shape.norm != "post",
        "init = admin sets the weights of post-norm residuals; it needs norm = post.",
    )
