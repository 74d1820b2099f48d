"""One step of a numerical method: y_t -> y_{t+1}, with F given as a function.

Every method is a Solver with `step(F, y, history) -> (y, history)`. History is an argument, never
hidden state: one-step methods pass it through untouched, multistep methods keep in it what they
need of earlier steps. Learned coefficients are parameters of the solver, one solver per block.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from kutta.errors import InputError
from kutta.ode.gamma import GAMMAS, Weights
from kutta.ode.methods import CUSTOM, METHODS, tableau_of
from kutta.ode.tableau import ButcherTableau

Field = Callable[[Tensor], Tensor]
History = tuple[Tensor, ...]


class Solver(nn.Module, ABC):
    """A numerical method, as the step of block number `block` of a stack.

    `evaluations` says how often one step calls F, always in that order.
    """

    evaluations: int = 1

    def __init__(self, block: int = 0) -> None:
        super().__init__()

    @abstractmethod
    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        """Advance y (any shape) by one step of F; return the new y and the new history."""


class RungeKutta(Solver):
    """Explicit Runge-Kutta: F_i = F(y + sum_{j<i} beta_ij F_j), y' = y + sum_i gamma_i F_i.

    The stages come from the tableau, the weights gamma are the block's: see kutta.ode.gamma.
    `start` is where learned weights begin, `width` the d of y (..., d) that a gate has to know.
    """

    def __init__(
        self,
        tableau: ButcherTableau,
        gamma: str = "tableau",
        *,
        start: str = "ones",
        width: int = 0,
    ) -> None:
        super().__init__()
        if gamma not in GAMMAS:
            raise InputError(f"gamma is one of {', '.join(GAMMAS)}, not {gamma!r}.")
        kind = GAMMAS[gamma]
        if kind.stages not in (None, tableau.stages):
            raise InputError(
                f"gamma = {gamma!r} weighs {kind.stages} stages; this method has {tableau.stages}."
            )
        self.evaluations = tableau.stages
        self.beta = [[float(x) for x in row] for row in tableau.a]
        self.b = [float(x) for x in tableau.b]
        self.gamma = gamma
        first = kind.learns(self.b, start, width) if kind.learns else {}
        for name, values in first.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(values)))

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        stages = self.stages(F, y)
        return combine(y, self.weights(stages), stages), history

    def stages(self, F: Field, y: Tensor) -> list[Tensor]:
        """F_1, ..., F_s, each of y's shape."""
        stages = [F(y)]
        for row in self.beta:
            stages.append(F(combine(y, row, stages)))
        return stages

    def weights(self, stages: list[Tensor]) -> Weights:
        """gamma_1, ..., gamma_s: numbers, scalars or (..., 1); only gates look at the stages."""
        return GAMMAS[self.gamma].weights(self.b, dict(self.named_parameters()), stages)


class Leapfrog(Solver):
    """y_{t+1} = y_{t-1} + 2 F(y_t); the first step is Euler's. History: (y_{t-1},)."""

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        after = history[0] + 2 * F(y) if history else y + F(y)
        return after, (y,)


class Multistep(Solver):
    """y_{t+1} = k y_t + (1 - k) y_{t-1} + F(y_t), k learned, starting at 1, i.e. at Euler.

    The first step is Euler's and has no k in it. History: (y_{t-1},).
    """

    def __init__(self, block: int = 0) -> None:
        super().__init__()
        self.k = nn.Parameter(torch.ones(())) if block else None

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        if not history or self.k is None:
            return y + F(y), (y,)
        return self.k * y + (1 - self.k) * history[0] + F(y), (y,)


class DLCL(Solver):
    """y_{t+1} = y_0 + sum_{l<=t} W_{t,l} F(y_l): each block weighs all increments so far.

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
        return combine(start, self.weights.unbind(), increments), (start, *increments)


# Adams-Moulton: the weights of F at y_{t+1}, y_t, y_{t-1}, y_{t-2} after 0, 1, 2 or more blocks.
ADAMS_MOULTON = ((1 / 2, 1 / 2), (5 / 12, 8 / 12, -1 / 12), (9 / 24, 19 / 24, -5 / 24, 1 / 24))


class PredictorCorrector(Solver):
    """P = y + sum_i ema_i F_i, then y' = y + w_0 F(P) + w_1 F_1(t) + w_2 F_1(t-1) + w_3 F_1(t-2).

    The predictor is a Runge-Kutta block with EMA weights, the corrector a multistep method over
    the first stages F_1 of this block and of at most two before it. The row w of block t is
    learned and starts at Adams-Moulton. History: (F_1(t-1), F_1(t-2)), the newest first.
    """

    def __init__(self, tableau: ButcherTableau, block: int = 0) -> None:
        super().__init__()
        self.predictor = RungeKutta(tableau, "ema")
        self.evaluations = tableau.stages + 1
        self.corrector = nn.Parameter(torch.tensor(ADAMS_MOULTON[min(block, 2)]))

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        if len(history) + 2 != len(self.corrector):
            raise ValueError(
                f"A corrector of {len(self.corrector)} weights looks back on "
                f"{len(self.corrector) - 2} blocks, but was given {len(history)} earlier stages."
            )
        stages = self.predictor.stages(F, y)
        predicted = combine(y, self.predictor.weights(stages), stages)
        slopes = [F(predicted), stages[0], *history]
        return combine(y, self.corrector.unbind(), slopes), (stages[0], *history)[:2]


class PolyNet(Solver):
    """y' = y + F(y) + F(F(y)): a polynomial in F, not a Runge-Kutta method."""

    evaluations = 2

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        first = F(y)
        return y + first + F(first), history


def combine(y: Tensor, weights: Weights, terms: Sequence[Tensor]) -> Tensor:
    """y + sum_i weights_i terms_i; zero weights cost nothing and unit weights stay exact."""
    for weight, term in zip(weights, terms, strict=True):
        if isinstance(weight, Tensor):
            y = torch.addcmul(y, weight, term)
        elif weight == 1.0:
            y = y + term
        elif weight != 0.0:
            y = torch.add(y, term, alpha=weight)
    return y


def make_solver(
    method: str,
    gamma: str = "tableau",
    block: int = 0,
    *,
    start: str = "ones",
    width: int = 0,
    tableau: ButcherTableau | None = None,
) -> Solver:
    """The solver of the block number `block` (from 0) for a method's name.

    `start` and `width` serve gamma (see RungeKutta), `tableau` is the method called "custom".
    """
    if method not in METHODS:
        raise InputError(f"There is no method {method!r}; choose one of {', '.join(METHODS)}.")
    chosen = tableau_of(method, tableau)
    if chosen is not None:
        return RungeKutta(chosen, gamma, start=start, width=width)
    if method == CUSTOM:
        raise InputError(
            "The method 'custom' needs a tableau: [model.tableau] with a and b in the config."
        )
    if gamma != "tableau":
        raise InputError(f"{method} is not a Runge-Kutta method and has no gamma {gamma!r}.")
    return METHODS[method].build(block)
