"""The figure of a reproduction: our numbers next to the paper's."""

from collections.abc import Callable, Mapping
from pathlib import Path

from kutta.plotting import Figure, new_figure, title
from kutta.reproduce.charts import against_parameters, bars, lines
from kutta.reproduce.curves import curves, gradients
from kutta.reproduce.perform import Result
from kutta.reproduce.plan import Plan
from kutta.reproduce.results import unfinished

KINDS: dict[str, Callable[[Figure, Plan, Mapping[str, Result]], None]] = {
    "bars": bars,
    "lines": lines,
    "parameters": against_parameters,
    "curves": curves,
    "gradients": gradients,
}


def names_of(plan: Plan) -> list[str]:
    """The names of the figures: "figure" for the first, and the kinds of others."""
    return ["figure", *plan.experiment.figures[1:]]


def draw(plan: Plan, results: Mapping[str, Result]) -> list[Path]:
    """Write every figure of the available results as PNG and SVG; return their paths."""
    drawn: list[Path] = []
    for name, kind in zip(names_of(plan), plan.experiment.figures, strict=True):
        paths = [plan.folder / f"{name}.{suffix}" for suffix in ("png", "svg")]
        with new_figure(*paths) as figure:
            KINDS[kind](figure, plan, results)
            title(figure, _title(plan, results))
        drawn += paths
    return drawn


def _title(plan: Plan, results: Mapping[str, Result]) -> str:
    """The title of the experiment, and how many of its runs are done."""
    done, planned = len(plan.runs) - len(unfinished(plan, results)), len(plan.runs)
    return plan.experiment.title + (f" ({done} of {planned} runs)" if done < planned else "")
