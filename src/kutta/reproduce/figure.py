"""The figure of a reproduction, drawn from our numbers, with the paper's beside them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kutta.files import atomic_path
from kutta.reproduce.charts import against_parameters, bars, lines
from kutta.reproduce.curves import curves, gradients
from kutta.reproduce.perform import Result
from kutta.reproduce.plan import Plan
from kutta.reproduce.results import unfinished
from kutta.reproduce.style import STYLE

KINDS: dict[str, Callable[[Any, Plan, Mapping[str, Result]], None]] = {
    "bars": bars,
    "lines": lines,
    "parameters": against_parameters,
    "curves": curves,
    "gradients": gradients,
}


def draw(plan: Plan, results: Mapping[str, Result]) -> list[Path]:
    """Write figure.png and figure.svg of what is there; return their paths."""
    import matplotlib  # slow to import, and needed for pictures only
    from matplotlib.figure import Figure

    paths = [plan.folder / f"figure.{kind}" for kind in ("png", "svg")]
    library: Any = matplotlib
    with library.rc_context(STYLE):
        figure: Any = Figure(layout="constrained")
        KINDS[plan.experiment.figure](figure, plan, results)
        figure.suptitle(_title(plan, results), fontsize=10.5, x=0.01, ha="left")
        for path in paths:
            stamp = {"Date": None} if path.suffix == ".svg" else {}
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format=path.suffix[1:], dpi=200, metadata=stamp)
    return paths


def _title(plan: Plan, results: Mapping[str, Result]) -> str:
    """The experiment's, and how much of it is there yet."""
    done, planned = len(plan.runs) - len(unfinished(plan, results)), len(plan.runs)
    return plan.experiment.title + (f" ({done} of {planned} runs)" if done < planned else "")
