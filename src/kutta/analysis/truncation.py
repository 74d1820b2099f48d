"""The local truncation error of every block, measured on real sentences.

A block takes y to y'. The ODE of the same block, dz/dt = F(z) with z(0) = y, is solved with high
accuracy, and the error of the step is

    error(T) = |y' - z(T)| / |y' - y|,         | | over all tokens of a sentence.

T is 1, or the time that the block covers, which for learned weights is sum(gamma). The same is
measured at the same y for Euler, RK2 and RK4 with one, two and four substeps. All errors of a block
are relative to the length of the block's own step, so they are comparable.
"""

import copy
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from torch import Tensor

from kutta.analysis.observe import Place, Seen, blocks_of, stacks_of, times_of, watch
from kutta.analysis.subject import Subject, Track
from kutta.analysis.variants import with_method
from kutta.data.batches import Batch
from kutta.model import TextModel
from kutta.ode import TABLEAUX, make_solver
from kutta.ode.error import (
    NotConverged,
    Solution,
    Substeps,
    norm,
    observed_order,
    richardson,
    solve,
)

METHODS = ("euler", "rk2", "rk4")
OWN = "own"  # the step as the model takes it
SUBSTEPS = (1, 2, 4)
TOLERANCE = 1e-7

Key = tuple[Place, str, str]  # the block, the method, and the time: "1" or "own"
Numbers = dict[str, float | None]


def measure_truncation(subject: Subject, track: Track) -> dict[str, Any]:
    """Errors, estimates and observed orders of every block of every stack, as rows."""
    rows: list[dict[str, Any]] = []
    for view, stack, model in _views(subject):
        model = copy.deepcopy(model).double()
        times = times_of(model)
        batches = track(subject.one_by_one(), f"truncation: {stack} by {view}")
        for key, numbers in _watched(model, stack, batches, times).items():
            rows.append({"view": view} | _row(key, times[key[0]], numbers))
    return {**subject.facts(), "tolerance": TOLERANCE, "rows": rows}


def _views(subject: Subject) -> Iterator[tuple[str, str, TextModel]]:
    """What is measured: each stack by blocks and, where Euler splits them, also by sublayers.

    Euler over san+ffn is computed one sublayer at a time, but as a method it is one step of the
    same F as RK2 and RK4; only in that view are the errors of the methods comparable.
    """
    for stack in stacks_of(subject.model):
        trained = [p for p, _, _ in blocks_of(subject.model) if p.stack == stack]
        if all("+" not in place.sublayers for place in trained):
            composed = with_method(subject, stack, "euler")
            if [p for p, _, _ in blocks_of(composed) if p.stack == stack] != trained:
                yield "block", stack, composed
                yield "sublayer", stack, subject.model
                continue
        yield "block", stack, subject.model


def _watched(
    model: TextModel, stack: str, batches: Iterable[Batch], times: dict[Place, float]
) -> dict[Key, list[Numbers | None]]:
    """The numbers of every block of a stack, one for each sentence."""
    found: dict[Key, list[Numbers | None]] = defaultdict(list)

    def on_step(seen: Seen) -> None:
        if seen.place.stack == stack:
            for method, time, numbers in _errors(seen, times[seen.place]):
                found[seen.place, method, time].append(numbers)

    watch(model, batches, on_step)
    return found


def _errors(seen: Seen, own_time: float) -> Iterator[tuple[str, str, Numbers | None]]:
    """(method, time, numbers) of one block and sentence; None if the solution did not converge."""
    consistent = abs(own_time - 1) < 1e-6
    for name, time in {"1": 1.0, "own": own_time}.items():
        if name == "own" and consistent:
            continue
        try:
            exact = solve(seen.F, seen.y, time, TOLERANCE)
        except NotConverged:
            yield from ((method, name, None) for method in (OWN, *METHODS))
            continue
        yield OWN, name, _own_errors(seen, exact, divided=consistent or name == "own")
        for method in METHODS:
            yield method, name, _method_errors(seen, exact, method, time)


def _own_errors(seen: Seen, exact: Solution, divided: bool) -> Numbers:
    """The errors of the block's own step; if it can be divided, also its observed order."""
    numbers: Numbers = {
        "error": _missed(seen, seen.after, exact),
        "reference_error": _in_steps(seen, exact.error),
        "reference_evaluations": exact.evaluations,
    }
    if divided and seen.one_step:
        two, four = (Substeps(seen.solver, n).step(seen.F, seen.y)[0] for n in SUBSTEPS[1:])
        numbers["order"] = observed_order(_missed(seen, two, exact), _missed(seen, four, exact))
    return numbers


def _method_errors(seen: Seen, exact: Solution, method: str, time: float) -> Numbers:
    """The errors of another method at the same state."""
    solvers = [Substeps(make_solver(method), n, time) for n in SUBSTEPS]
    one, two, four = (solver.step(seen.F, seen.y)[0] for solver in solvers)
    errors = [_missed(seen, end, exact) for end in (one, two, four)]
    estimate = richardson(one, two, TABLEAUX[method].order)
    return {
        "error": errors[0],
        "error_2": errors[1],
        "error_4": errors[2],
        "estimate": _in_steps(seen, norm(estimate)),
        "order": observed_order(errors[1], errors[2]),
    }


def _missed(seen: Seen, end: Tensor, exact: Solution) -> float:
    return _in_steps(seen, norm(end - exact.y))


def _in_steps(seen: Seen, length: float) -> float:
    """A length relative to the block's own step; nan if the block does nothing."""
    step = norm(seen.after - seen.y)
    return length / step if step > 0 else math.nan


def _row(key: Key, own_time: float, numbers: list[Numbers | None]) -> dict[str, Any]:
    """The row of a block and method: medians over sentences, and the 10-90% range."""
    place, method, time = key
    good = [n for n in numbers if n is not None]
    row: dict[str, Any] = {
        **asdict(place),
        "method": method,
        "time": time,
        "span": 1.0 if time == "1" else own_time,
        "sentences": len(good),
        "not_converged": len(numbers) - len(good),
    }
    for name in dict.fromkeys(name for n in good for name in n):
        values = [value for n in good if (value := n[name]) is not None]
        row[name] = float(np.median(values)) if values else None
    errors = [error for n in good if (error := n["error"]) is not None]
    row["low"], row["high"] = np.quantile(errors, (0.1, 0.9)).tolist() if errors else (None, None)
    return row
