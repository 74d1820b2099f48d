"""One step of a numerical method: y_t -> y_{t+1}, with F given as a function.

Every method is a Solver with `step(F, y, history) -> (y, history)`. History is an argument, never
hidden state: one-step methods pass it through untouched, multistep methods keep in it what they
need of earlier steps. Learned coefficients are parameters of the solver, one solver per block.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from kutta.errors import InputError
from kutta.ode.tableau import TABLEAUX, ButcherTableau

Field = Callable[[Tensor], Tensor]
History = tuple[Tensor, ...]
Gamma = Literal["tableau", "ones", "learned"]


class Solver(nn.Module, ABC):
    """A numerical method; `evaluations` says how often one step calls F, always in that order."""

    evaluations: int = 1

    @abstractmethod
    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        """Advance y (any shape) by one step of F; return the new y and the new history."""


class RungeKutta(Solver):
    """Explicit Runge-Kutta: F_i = F(y + sum_{j<i} beta_ij F_j), y' = y + sum_i gamma_i F_i.

    The stages come from the tableau. The weights gamma belong to the block: `tableau` takes the
    tableau's b, `ones` sets all to 1 (paper: "gamma = 1"), `learned` trains one scalar per stage,
    starting at 1 (paper: RK2-block-v2).
    """

    def __init__(self, tableau: ButcherTableau, gamma: Gamma = "tableau") -> None:
        super().__init__()
        self.evaluations = tableau.stages
        self.beta = [[float(x) for x in row] for row in tableau.a]
        if gamma not in get_args(Gamma):
            raise InputError(f"gamma is one of {', '.join(get_args(Gamma))}, not {gamma!r}.")
        self.learned_gamma = (
            nn.Parameter(torch.ones(tableau.stages)) if gamma == "learned" else None
        )
        self.fixed_gamma = [1.0 if gamma == "ones" else float(x) for x in tableau.b]

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        stages = [F(y)]
        for row in self.beta:
            stages.append(F(_combine(y, row, stages)))
        gamma = self.fixed_gamma if self.learned_gamma is None else self.learned_gamma.unbind()
        return _combine(y, gamma, stages), history


class Leapfrog(Solver):
    """y_{t+1} = y_{t-1} + 2 F(y_t); the first step is Euler's. History: (y_{t-1},)."""

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        after = history[0] + 2 * F(y) if history else y + F(y)
        return after, (y,)


class Multistep(Solver):
    """y_{t+1} = k y_t + (1 - k) y_{t-1} + F(y_t), k learned, starting at 1, i.e. at Euler.

    The first step is Euler's and has no k in it. History: (y_{t-1},).
    """

    def __init__(self, first: bool = False) -> None:
        super().__init__()
        self.k = None if first else nn.Parameter(torch.ones(()))

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        if not history or self.k is None:
            return y + F(y), (y,)
        return self.k * y + (1 - self.k) * history[0] + F(y), (y,)


class DLCL(Solver):
    """y_{t+1} = y_0 + sum_{l<=t} W_{t,l} F(y_l): each block weighs all increments so far anew.

    `block` is t; its row W_t of t+1 weights starts at 1, i.e. at Euler.
    History: (y_0, F(y_0), ..., F(y_{t-1})).
    """

    def __init__(self, block: int = 0) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(block + 1))

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        start, *increments = history or (y,)
        increments.append(F(y))
        if len(increments) != len(self.weights):
            raise ValueError(
                f"DLCL block {len(self.weights) - 1} was given {len(increments) - 1} increments."
            )
        return _combine(start, self.weights.unbind(), increments), (start, *increments)


class PolyNet(Solver):
    """y' = y + F(y) + F(F(y)): a polynomial in F, not a Runge-Kutta method."""

    evaluations = 2

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        first = F(y)
        return y + first + F(first), history


def _combine(y: Tensor, weights: "list[float] | tuple[Tensor, ...]", terms: list[Tensor]) -> Tensor:
    """y + sum_i weights_i terms_i; zero weights cost nothing and unit weights stay exact."""
    for weight, term in zip(weights, terms, strict=False):
        if isinstance(weight, Tensor):
            y = torch.addcmul(y, weight, term)
        elif weight == 1.0:
            y = y + term
        elif weight != 0.0:
            y = torch.add(y, term, alpha=weight)
    return y


# Methods that are not Runge-Kutta: name -> (how to build the solver of block t, what it is).
OTHER_METHODS: dict[str, tuple[Callable[[int], Solver], str]] = {
    "leapfrog": (lambda block: Leapfrog(), "y_{t-1} + 2 F(y)"),
    "multistep": (lambda block: Multistep(first=block == 0), "two-step, k learned"),
    "dlcl": (DLCL, "dynamic linear combination of layers"),
    "polynet": (lambda block: PolyNet(), "y + F(y) + F(F(y))"),
}
CUSTOM = "custom"  # the name of a tableau that the user gives
METHODS = (*TABLEAUX, *OTHER_METHODS, CUSTOM)
# Methods that look back to earlier blocks; they need every block of the stack to be theirs.
HISTORY_METHODS = frozenset({"leapfrog", "multistep", "dlcl"})


def stages_of(method: str, own: ButcherTableau | None = None) -> int | None:
    """How many stages a Runge-Kutta method has; None for a method of another kind."""
    tableau = own if method == CUSTOM else TABLEAUX.get(method)
    return None if tableau is None else tableau.stages


def make_solver(method: str, gamma: Gamma = "tableau", block: int = 0) -> Solver:
    """The solver of the block number `block` (from 0) for a method's name."""
    if method in TABLEAUX:
        return RungeKutta(TABLEAUX[method], gamma)
    if method in OTHER_METHODS and gamma != "tableau":
        raise InputError(f"{method} is not a Runge-Kutta method and has no gamma {gamma!r}.")
    if method in OTHER_METHODS:
        return OTHER_METHODS[method][0](block)
    raise InputError(f"There is no method {method!r}; choose one of {', '.join(METHODS)}.")
