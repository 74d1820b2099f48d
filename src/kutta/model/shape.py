"""What a stack is made of, as data: its sizes, its method, and which sublayers form a block."""

from dataclasses import dataclass
from typing import NamedTuple

from kutta.config import ModelConfig
from kutta.ode import GAMMAS


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
    """One stack of a model with these settings; `cross` makes it a decoder over a memory.

    Encoder and decoder differ in depth and method only. What goes together is a matter of the
    settings, which have been checked (ModelConfig).
    """

    settings: ModelConfig
    layers: int
    method: str = "euler"
    gamma: str = "tableau"
    cross: bool = False


def blocks_of(shape: StackShape) -> list[Block]:
    """The blocks of a layer of this shape, in order."""
    # Euler over a composed field is by definition one Euler step per sublayer. Taking them one
    # by one keeps the ordinary Transformer's order of additions, to the last bit.
    gamma = GAMMAS[shape.gamma]
    weighs_one = not gamma.learned and [*gamma.weights([1.0], {}, ())] == [1.0]
    plain = shape.method == "euler" and weighs_one
    # The release applies a layer once where the method is Euler, and that is y + F(y) already.
    identity = shape.settings.replicate == "release" and shape.method != "euler"
    blocks: list[Block] = []
    for block in PLACEMENTS[shape.settings.field]:
        attention = ("san", "cross") if shape.cross else ("san",)
        parts = [n for name in block.parts for n in (attention if name == "san" else (name,))]
        steps = [(name,) for name in parts] if plain or not block.chosen else [tuple(parts)]
        blocks += [block._replace(parts=step, identity=identity) for step in steps]
    return blocks
