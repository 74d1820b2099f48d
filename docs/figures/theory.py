"""The figures of docs/theory.md: steps along a solution, and error against work.

python docs/figures/theory.py
"""

import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kutta.ode import make_solver
from kutta.plotting import BLACK, colour_of, legend, marker_of, new_figure

HERE = Path(__file__).parent
METHODS = ("euler", "rk2", "rk4")
NAMES = {"euler": "Euler (residual block)", "rk2": "RK2", "rk4": "RK4"}
TURN, DECAY = 1.0, 0.1  # y' = A y: a rotation that slowly shrinks
TIME = 2 * math.pi
WORK = (12, 24, 48, 96, 192)  # evaluations of F


def field(y: Tensor) -> Tensor:
    """A y for y (2,)."""
    x, z = y.unbind(-1)
    return torch.stack([-DECAY * x - TURN * z, TURN * x - DECAY * z], dim=-1)


def exact(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """The solution from (1, 0), (..., 2)."""
    shrink = np.exp(-DECAY * times)
    return np.stack([shrink * np.cos(TURN * times), shrink * np.sin(TURN * times)], axis=-1)


def steps(method: str, count: int) -> NDArray[np.float64]:
    """The states of `count` blocks over TIME, (count + 1, 2)."""
    y, h = torch.tensor([1.0, 0.0], dtype=torch.float64), TIME / count
    states, solver = [y], make_solver(method)
    for _ in range(count):
        y, _ = solver.step(lambda v: h * field(v), y)
        states.append(y)
    return torch.stack(states).numpy()


def draw_steps(path: Path, count: int = 12) -> None:
    """Each method walks along the same solution in the same number of blocks."""
    with new_figure(path) as figure:
        figure.set_size_inches(7.2, 2.7)
        fine = exact(np.linspace(0, TIME, 400))
        for number, (axes, method) in enumerate(
            zip(figure.subplots(1, 3, sharex=True, sharey=True), METHODS, strict=True)
        ):
            walked = steps(method, count)
            axes.plot(*fine.T, color=BLACK, linewidth=0.8)
            axes.plot(*walked.T, color=colour_of(number), marker=marker_of(number))
            axes.set(title=NAMES[method], aspect="equal")


def draw_work(path: Path) -> None:
    """The error at the end against the evaluations of F: what the same work buys."""
    with new_figure(path) as figure:
        figure.set_size_inches(4.2, 3.0)
        axes = figure.subplots()
        end = exact(np.array([TIME]))[0]
        for number, method in enumerate(METHODS):
            cost = make_solver(method).evaluations
            counts = [evaluations // cost for evaluations in WORK]
            errors = [float(np.linalg.norm(steps(method, n)[-1] - end)) for n in counts]
            work = [n * cost for n in counts]
            style = {"color": colour_of(number), "marker": marker_of(number)}
            axes.loglog(work, errors, label=NAMES[method], **style)
        axes.set(xlabel="evaluations of F", ylabel="error at the end")
        axes.set_xticks(WORK, labels=map(str, WORK))
        axes.minorticks_off()
        legend(axes)


if __name__ == "__main__":
    draw_steps(HERE / "theory-steps.svg")
    draw_work(HERE / "theory-work.svg")
