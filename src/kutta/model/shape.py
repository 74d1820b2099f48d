"""What a stack is made of, as data: its sizes, its method, and which sublayers form a block."""

from dataclasses import dataclass
from typing import NamedTuple, Self

from kutta.config import ModelConfig
from kutta.ode import GAMMAS, ButcherTableau


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
    """The sizes and the method of a stack; `cross` makes it a decoder over a memory.

    What goes together is a matter of the settings, which have been checked (ModelConfig).
    """

    d_model: int
    ffn: int
    heads: int
    layers: int
    method: str = "euler"
    gamma: str = "tableau"
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

    @classmethod
    def of(
        cls, config: ModelConfig, layers: int, method: str, gamma: str, cross: bool = False
    ) -> Self:
        """A stack of these settings; encoder and decoder differ in what is given beside them."""
        return cls(
            d_model=config.d_model,
            ffn=config.ffn,
            heads=config.heads,
            layers=layers,
            method=method,
            gamma=gamma,
            placement=config.field,
            clip=config.relative_positions,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            relu_dropout=config.relu_dropout,
            cross=cross,
            start=config.gamma_start,
            share_gamma=config.share_gamma,
            tableau=config.own_tableau(),
            replicate=config.replicate,
            norm=config.norm,
            init=config.init,
            share_layers=config.share_layers,
            stage_parameters=config.stage_parameters,
            layer_drop=config.layer_drop,
        )


def blocks_of(shape: StackShape) -> list[Block]:
    """The blocks of a layer of this shape, in order."""
    blocks = [
        block._replace(parts=tuple(n for name in block.parts for n in _expand(name, shape.cross)))
        for block in PLACEMENTS[shape.placement]
    ]
    # Euler over a composed field is by definition one Euler step per sublayer. Taking them one
    # by one keeps the ordinary Transformer's order of additions, to the last bit.
    plain = shape.method == "euler" and _unit_weight(shape.gamma)
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


def _unit_weight(gamma: str) -> bool:
    """Whether the one stage of Euler's method has the weight 1 for good."""
    kind = GAMMAS[gamma]
    return not kind.learned and [*kind.weights([1.0], {}, ())] == [1.0]
