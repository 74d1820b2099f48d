"""The steps of every block: norms, directions, and learned coefficients."""

from collections import defaultdict
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kutta.analysis.observe import Place, Seen, times_of, watch
from kutta.analysis.subject import Subject, Track
from kutta.analysis.variants import not_an_ode
from kutta.ode import RungeKutta, Solver
from kutta.ode.error import norm

_MANY = 64  # a parameter with more elements is reported by its mean


def measure_blocks(subject: Subject, track: Track) -> dict[str, Any]:
    """Norms, cosines and coefficients of every block, as rows: medians over sentences."""
    found: dict[Place, list[dict[str, list[float]]]] = defaultdict(list)

    def on_step(seen: Seen) -> None:
        found[seen.place].append(_measure(seen))

    watch(subject.model, track(subject.one_by_one(), "blocks"), on_step)
    # A block that is not a step of an ODE covers no time.
    no_time = not_an_ode(subject.config.model) is not None
    times = dict.fromkeys(found) if no_time else times_of(subject.model)
    rows = [_row(place, times[place], measured) for place, measured in found.items()]
    return {**subject.facts(), "rows": rows}


def _measure(seen: Seen) -> dict[str, list[float]]:
    """The measurements of one block and sentence; lengths are root mean squares per token."""
    stages: list[Tensor] = []

    def F(y: Tensor) -> Tensor:
        stages.append(seen.F(y))
        return stages[-1]

    seen.solver.step(F, seen.y, seen.history)
    step = seen.after - seen.y
    return {
        "state": [_length(seen.y)],
        "step": [_length(step)],
        "relative_step": [norm(step) / max(norm(seen.y), 1e-30)],
        "stages": [_length(stage) for stage in stages],
        "cosine_to_first": [_cosine(stages[0], stage) for stage in stages],
        "cosine_to_state": [_cosine(seen.y, step)],
        **coefficients(seen.solver, stages),
    }


def coefficients(solver: Solver, stages: list[Tensor]) -> dict[str, list[float]]:
    """The weights of the stages of a Runge-Kutta block, or the parameters of another method.

    Gated weights differ from token to token; their mean and deviation are given.
    """
    if isinstance(solver, RungeKutta):
        weights = [torch.as_tensor(weight).detach().float() for weight in solver.weights(stages)]
        found = {"gamma": [float(weight.mean()) for weight in weights]}
        if any(weight.numel() > 1 for weight in weights):
            found["gamma_deviation"] = [float(w.std(correction=0)) for w in weights]
        return found
    learned = {name: p.detach().float().flatten() for name, p in solver.named_parameters()}
    return {
        name: [float(x) for x in p] if len(p) <= _MANY else [float(p.mean())]
        for name, p in learned.items()
    }


def _length(y: Tensor) -> float:
    return norm(y) / (y.shape[0] * y.shape[1]) ** 0.5


def _cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.cosine_similarity(a.flatten(), b.flatten(), dim=0))


# The measurements of a row; coefficients come in addition, under the method's own names.
_MEASURES = ("state", "step", "relative_step", "stages", "cosine_to_first", "cosine_to_state")


def _row(
    place: Place, time: float | None, measured: list[dict[str, list[float]]]
) -> dict[str, Any]:
    medians = {
        name: np.median([one[name] for one in measured], axis=0).tolist() for name in measured[0]
    }
    return {
        **asdict(place),
        "time": time,
        **{
            name: medians[name] if name in ("stages", "cosine_to_first") else medians[name][0]
            for name in _MEASURES
        },
        "coefficients": {name: m for name, m in medians.items() if name not in _MEASURES},
    }
