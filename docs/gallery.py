"""The method gallery: every method with its tableau, stability region, measured order and cost.

python docs/gallery.py   write the figures of the page; docs/generate.py writes its text

The numbers are measured with the solvers themselves, in double precision.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from kutta.config import ModelConfig
from kutta.model.arithmetic import cost_of
from kutta.model.transformer import build_model
from kutta.ode import METHODS, ButcherTableau, make_solver
from kutta.ode.error import observed_order
from kutta.ode.methods import CUSTOM
from kutta.plotting import BLUE, GREY, SKY, new_figure

FIGURES = Path(__file__).parent / "figures"
NAMES = [name for name in METHODS if name != CUSTOM]
TIME, START = 3.0, 0.1  # of the logistic equation y' = y (1 - y), y(0) = 0.1
STEPS = (40, 80)
FINE = (240, 480)  # where errors of higher order hide the leading one
SPAN = (-4.5, 2.0, -3.5, 3.5)  # of the complex plane: left, right, bottom, top
VOCABULARY = 32_768
STABLE = 1.005  # leapfrog is stable on a line only, which a grid of points would miss
LONG = 150  # blocks after which a method that looks back has forgotten its start


def error(method: str, steps: int) -> float:
    """The largest error on the logistic equation with so many blocks."""
    y, history = torch.tensor([START], dtype=torch.float64), ()
    h, worst = TIME / steps, 0.0
    with torch.no_grad():
        for block in range(steps):
            solver = make_solver(method, block=block).double()
            y, history = solver.step(lambda v: h * v * (1 - v), y, history)
            grown = START * math.exp(h * (block + 1))
            worst = max(worst, abs(float(y) - grown / (1 - START + grown)))
    return worst


def measured(method: str) -> str:
    """The observed order of a method, to one decimal."""
    coarse, fine = FINE if method.startswith("pc") else STEPS
    order = observed_order(error(method, coarse), error(method, fine))
    return "-" if order is None else f"{order:.1f}"


def growth(method: str, z: NDArray[np.complex128]) -> NDArray[np.float64]:
    """|y_n|^(1/n) of y' = z y after n blocks: the solution stays bounded where it is at most 1.

    One block of a one-step method says it all. y has the real and imaginary part of each z in its
    last dimension.
    """
    blocks = LONG if METHODS[method].looks_back else 1
    parts = torch.from_numpy(np.stack([z.real, z.imag], axis=-1))

    def field(y: torch.Tensor) -> torch.Tensor:
        (a, b), (c, d) = parts.unbind(-1), y.unbind(-1)
        return torch.stack([a * c - b * d, a * d + b * c], dim=-1)

    y, history = torch.zeros_like(parts), ()
    y[..., 0] = 1.0
    with torch.no_grad():
        for block in range(blocks):
            y, history = make_solver(method, block=block).double().step(field, y, history)
    return y.norm(dim=-1).pow(1 / blocks).nan_to_num(nan=math.inf).numpy()


def draw_region(method: str, folder: Path = FIGURES) -> None:
    """The stability region of a method: the z = h lambda for which steps do not grow."""
    left, right, bottom, top = SPAN
    x, y = np.linspace(left, right, 131), np.linspace(bottom, top, 141)
    values = growth(method, x[None, :] + 1j * y[:, None])
    with new_figure(folder / f"stability-{method}.svg") as figure:
        figure.set_size_inches(2.6, 2.6)
        axes = figure.subplots()
        axes.contourf(x, y, values, levels=[0, STABLE], colors=[SKY], alpha=0.55)
        axes.contour(x, y, values, levels=[STABLE], colors=[BLUE], linewidths=1.0)
        axes.axhline(0, color=GREY, linewidth=0.6)
        axes.axvline(0, color=GREY, linewidth=0.6)
        axes.set(xlabel="Re hλ", ylabel="Im hλ", aspect="equal")


def tableau_text(tableau: ButcherTableau) -> str:
    """A Butcher tableau in aligned columns: c | a above, b below the line."""
    rows = [[str(c), *map(str, row)] for c, row in zip(tableau.c, ((), *tableau.a), strict=True)]
    last = ["", *map(str, tableau.b)]
    width = max(len(cell) for row in [*rows, last] for cell in row)

    def line(cells: Sequence[str]) -> str:
        first, *others = (cell.rjust(width) for cell in cells)
        return f"{first} | {'  '.join(others)}".rstrip()

    rule = "-" * (width + 1) + "+" + "-" * ((width + 2) * tableau.stages)
    return "\n".join([*map(line, rows), rule, line(last)])


def parameters_and_cost(method: str) -> tuple[int, float]:
    """What six encoder blocks learn, and the arithmetic of a source token over Euler's."""

    def cost(name: str) -> tuple[int, int]:
        with torch.device("meta"):  # sizes without numbers
            found = cost_of(build_model(ModelConfig(solver=name), VOCABULARY, VOCABULARY, True))
        return found.solver, found.per_source_token

    learned, arithmetic = cost(method)
    return learned, arithmetic / cost("euler")[1]


def entry(method: str) -> str:
    """The section of one method."""
    chosen = METHODS[method]
    learned, arithmetic = parameters_and_cost(method)
    evaluations = make_solver(method).evaluations
    rows = [
        ("order by its conditions", str(chosen.tableau.order) if chosen.tableau else "-"),
        ("measured order", measured(method)),
        ("evaluations of F", str(evaluations)),
        ("arithmetic per source token, base size, Euler = 1", f"{arithmetic:.2f}"),
        ("learned parameters in six blocks", str(learned)),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    tableau = f"\n```text\n{tableau_text(chosen.tableau)}\n```\n" if chosen.tableau else ""
    return (
        f"### {method}\n\n{_sentence(chosen.title)}\n{tableau}\n"
        f"| | |\n|---|---:|\n{table}\n\n"
        f"![Stability region of {method}](figures/stability-{method}.svg)"
    )


def _sentence(title: str) -> str:
    """A title as a sentence; a formula keeps its small letter."""
    first, _, _ = title.partition(" ")
    return f"{title if first.startswith('y') else title[0].upper() + title[1:]}."


def gallery() -> str:
    """The sections of all methods."""
    return "\n\n".join(map(entry, NAMES))


if __name__ == "__main__":
    for name in NAMES:
        draw_region(name)
