"""How far one step of a method is from the solution of its own ODE: dz/dt = F(z), z(0) = y.

A block of a network knows F only through its values, so the "exact" solution is one that is
computed with many small steps of a method of high order: `solve`. What a step misses of it is its
local truncation error. `richardson` estimates that number from the step itself, by halving it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kutta.errors import InputError
from kutta.ode.solver import Field, History, Solver, combine


class NotConverged(ArithmeticError):
    """The fine solution could not be found; the message says how far it came."""


class Substeps(Solver):
    """`count` steps of a one-step method, each over the time `time / count`.

    A step of size h is a step of the field h F, so the inner method needs to know nothing of it.
    """

    def __init__(self, solver: Solver, count: int = 1, time: float = 1.0) -> None:
        super().__init__()
        if count < 1:
            raise InputError(f"A step can be divided into 1 or more substeps, not {count}.")
        self.solver, self.count, self.time = solver, count, time
        self.evaluations = count * solver.evaluations

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        h = self.time / self.count
        for _ in range(self.count):
            y, after = self.solver.step(lambda state: h * F(state), y, history)
            if after is not history:
                raise InputError(
                    f"{type(self.solver).__name__} looks back to earlier steps, so its step cannot "
                    "be divided or scaled; take a one-step method such as rk4."
                )
        return y, history


def norm(y: Tensor) -> float:
    """The Euclidean length of all numbers of y."""
    return float(y.square().sum().sqrt())


def richardson(once: Tensor, twice: Tensor, order: int) -> Tensor:
    """The estimated error z(1) - y' of a step, from itself (`once`) and its two halves (`twice`).

    A step of order p misses C h^(p+1), two halves miss 2^-p of that: the difference tells C.
    """
    return (twice - once) * (2**order / (2**order - 1))


def observed_order(coarse: float, fine: float) -> float | None:
    """The p of error ~ h^p, from the errors of n and of 2n substeps; None where one is 0."""
    return math.log2(coarse / fine) if coarse > 0 and fine > 0 else None


def effective_times(solvers: Sequence[Solver], width: int = 1) -> list[float]:
    """How much time each step of a stack covers: what it makes of the field F = 1, from y = 0.

    A consistent method covers 1. Weights gamma that do not add up to 1 cover sum(gamma), PolyNet
    covers 2, and methods that look back cover what their learned coefficients come to. `width` is
    the size of the states, for methods that need to know it.
    """
    parameter = next((p for solver in solvers for p in solver.parameters()), torch.empty(0))
    y = parameter.new_zeros((1, 1, width))
    history: History = ()
    times: list[float] = []
    with torch.no_grad():
        for solver in solvers:
            after, history = solver.step(torch.ones_like, y, history)
            times.append(float((after - y).mean()))
            y = after
    return times


@dataclass(frozen=True)
class Solution:
    """The end y, how often F was evaluated, and the sum of the estimated errors of the steps."""

    y: Tensor
    evaluations: int
    error: float


# Dormand and Prince (1980): seven stages, of which the last is the first of the next step. The
# last row holds the weights of order 5; those of order 4 differ from them by _DIFFERENCE.
_A = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_DIFFERENCE = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def solve(
    F: Field, y: Tensor, time: float = 1.0, tolerance: float = 1e-8, max_evaluations: int = 5000
) -> Solution:
    """z(time) of dz/dt = F(z), z(0) = y (any shape), by the adaptive Dormand-Prince 5(4) pair.

    No step's estimated error is above `tolerance` x |time F(y)|, norms over the whole tensor.
    Where F is so rough (or so large) that `max_evaluations` do not suffice, NotConverged is raised.
    """

    def G(state: Tensor) -> Tensor:  # the same path, walked from 0 to 1
        return time * F(state)

    slope = G(y)
    allowed = tolerance * norm(slope)
    now, h, evaluations, total = 0.0, 1 / 8, 1, 0.0
    while now < 1.0:
        if evaluations + len(_A) > max_evaluations or not math.isfinite(allowed):
            raise NotConverged(
                f"the fine solution came to time {now * time:.3g} of {time:.3g} within "
                f"{evaluations:,} evaluations of F (last step {h * time:.1e})"
            )
        h = min(h, 1.0 - now)
        stages, after = [slope], y
        for row in _A:
            after = combine(y, [h * a for a in row], stages)  # in the last stage, the new y
            stages.append(G(after))
        evaluations += len(_A)
        error = norm(combine(torch.zeros_like(y), [h * d for d in _DIFFERENCE], stages))
        if error <= allowed:
            y, slope, now, total = after, stages[-1], now + h, total + error
        # The error goes as h^5, but F may have kinks: a step is at most 4 times as long as before.
        growth = 0.9 * (allowed / error) ** 0.2 if error > 0 else 4.0
        h *= min(4.0, max(0.2, growth)) if math.isfinite(error) else 0.2
    return Solution(y, evaluations, total)
