"""How a block weighs its stages: the gamma_i of y' = y + sum_i gamma_i F_i.

A kind of gamma is two pure functions: what it learns (names and first values), and the weights
that follow from it. The solver owns what is learned as its parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from kutta.errors import InputError

Gamma = Literal["tableau", "ones", "learned", "gated", "ema"]
Weights = Sequence[float | Tensor]
Learned = Mapping[str, Tensor]

STARTS: dict[str, Callable[[list[float]], Tensor]] = {
    "ones": lambda b: torch.ones(len(b)),  # the paper: RK2-block-v2
    "tableau": torch.tensor,
}


@dataclass(frozen=True)
class Kind:
    """`learns(b, start, width)` gives the first values, `weights(b, learned, stages)` gamma."""

    learns: Callable[[list[float], str, int], dict[str, Tensor]]
    weights: Callable[[list[float], Learned, Sequence[Tensor]], Weights]


def _nothing(b: list[float], start: str, width: int) -> dict[str, Tensor]:
    return {}


def _scalars(b: list[float], start: str, width: int) -> dict[str, Tensor]:
    """One scalar per stage: learned_gamma (s,)."""
    if start not in STARTS:
        raise InputError(f"Learned weights start at {' or '.join(STARTS)}, not at {start!r}.")
    return {"learned_gamma": STARTS[start](b)}


def _gate(b: list[float], start: str, width: int) -> dict[str, Tensor]:
    """A linear layer 2d -> 1, all zero, so that s = 1/2 and training starts at Heun's method."""
    if len(b) != 2:
        raise InputError(
            f"gamma = 'gated' weighs two stages against each other; this method has {len(b)}."
        )
    if width < 1:
        raise InputError(f"gamma = 'gated' needs the width of the states, not width = {width}.")
    return {"gate_weight": torch.zeros(1, 2 * width), "gate_bias": torch.zeros(1)}


def _gated(b: list[float], learned: Learned, stages: Sequence[Tensor]) -> Weights:
    """s = sigmoid(W [F1; F2] + c), one gate (..., 1) per position; weights s, 1 - s (ACL 2022)."""
    both = torch.cat(list(stages), dim=-1)
    s = torch.sigmoid(functional.linear(both, learned["gate_weight"], learned["gate_bias"]))
    return s, 1 - s


def _ema(b: list[float], learned: Learned, stages: Sequence[Tensor]) -> Weights:
    """a (1 - a)^(s - i) for i = 1..s: the last stage weighs most (PCformer)."""
    a = learned["alpha"]
    return [a * (1 - a) ** age for age in reversed(range(len(b)))]


KINDS: dict[str, Kind] = {
    "tableau": Kind(_nothing, lambda b, learned, stages: b),
    "ones": Kind(_nothing, lambda b, learned, stages: [1.0] * len(b)),
    "learned": Kind(_scalars, lambda b, learned, stages: learned["learned_gamma"].unbind()),
    "gated": Kind(_gate, _gated),
    "ema": Kind(lambda b, start, width: {"alpha": torch.tensor(0.5)}, _ema),
}
