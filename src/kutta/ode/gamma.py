"""How a block weighs its stages: the gamma_i of y' = y + sum_i gamma_i F_i.

A kind of gamma is one entry of GAMMAS: what it learns and the weights that follow from it, as two
pure functions, and what it asks of a method. The solver owns what is learned as its parameters.
Settings read the entries too, so nothing here loads torch before a step is taken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kutta.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Weights = Sequence["float | Tensor"]
Learned = Mapping[str, "Tensor"]
First = float | list[float] | list[list[float]]  # the first values of a parameter

STARTS: dict[str, Callable[[list[float]], list[float]]] = {
    "ones": lambda b: [1.0] * len(b),  # the paper: RK2-block-v2
    "tableau": list,
}


@dataclass(frozen=True)
class Gamma:
    """A kind of gamma; b are the tableau's weights, d is the width of the states.

    `weights(b, learned, stages)` gives gamma_1, ..., gamma_s and `learns(b, start, d)` the first
    values of its parameters; `formula` and `title` are for people.
    """

    formula: str
    title: str
    weights: Callable[[list[float], Learned, "Sequence[Tensor]"], Weights]
    learns: Callable[[list[float], str, int], dict[str, First]] | None = None
    stages: int | None = None  # how many a method must have; None for any number
    starts: bool = False  # whether its parameters begin where gamma_start says
    reads: tuple[str, ...] = ()  # which of its parameters are multiplied by the stages

    @property
    def learned(self) -> bool:
        """Whether it has parameters."""
        return self.learns is not None


def _scalars(b: list[float], start: str, width: int) -> dict[str, First]:
    """One scalar per stage: learned_gamma (s,)."""
    if start not in STARTS:
        raise InputError(f"Learned weights start at {' or '.join(STARTS)}, not at {start!r}.")
    return {"learned_gamma": STARTS[start](b)}


def _gate(b: list[float], start: str, width: int) -> dict[str, First]:
    """A linear layer 2d -> 1, all zero, so that s = 1/2 and training starts at Heun's method."""
    if width < 1:
        raise InputError(f"gamma = 'gated' needs the width of the states, not width = {width}.")
    return {"gate_weight": [[0.0] * (2 * width)], "gate_bias": [0.0]}


def _gated(b: list[float], learned: Learned, stages: "Sequence[Tensor]") -> Weights:
    """s = sigmoid(W [F1; F2] + c), one gate (..., 1) per position; weights s, 1 - s (ACL 2022)."""
    import torch

    both = torch.cat(list(stages), dim=-1)
    linear = torch.nn.functional.linear(both, learned["gate_weight"], learned["gate_bias"])
    s = torch.sigmoid(linear)
    return s, 1 - s


def _ema(b: list[float], learned: Learned, stages: "Sequence[Tensor]") -> Weights:
    """a (1 - a)^(s - i) for i = 1..s: the last stage weighs most (PCformer)."""
    a = learned["alpha"]
    return [a * (1 - a) ** age for age in reversed(range(len(b)))]


GAMMAS: dict[str, Gamma] = {
    "tableau": Gamma("b_1, ..., b_s", "the method's own", lambda b, learned, stages: b),
    "ones": Gamma("1, ..., 1", "the paper's gamma = 1", lambda b, learned, stages: [1.0] * len(b)),
    "learned": Gamma(
        "gamma_1, ..., gamma_s",
        "learned scalars, starting at 1 (the paper) or at b",
        weights=lambda b, learned, stages: learned["learned_gamma"].unbind(),
        learns=_scalars,
        starts=True,
    ),
    "gated": Gamma(
        "g, 1 - g",
        "g = sigmoid(W [F_1; F_2] + c), learned; two stages only (ACL 2022)",
        weights=_gated,
        learns=_gate,
        stages=2,
        reads=("gate_weight",),
    ),
    "ema": Gamma(
        "a (1 - a)^(s-1), ..., a (1 - a), a",
        "a learned, starting at 0.5 (PCformer)",
        weights=_ema,
        learns=lambda b, start, width: {"alpha": 0.5},
    ),
}
