"""The style of all figures, and saving them."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kutta.files import atomic_path

# Okabe and Ito's colour-blind safe palette; markers distinguish lines in print.
BLUE, RED, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, GREY = "#E69F00", "#56B4E9", "#000000", "#8C8C8C"
COLOURS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "figure.titlesize": 10.5,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "svg.hashsalt": "kutta",  # equal figures are equal files
}
# matplotlib is barely typed, and is imported only when a figure is drawn.
Figure = Any
Axes = Any


@contextmanager
def new_figure(*paths: Path) -> Generator[Figure]:
    """A figure in this style; on exit it is saved to every path (.png or .svg)."""
    import matplotlib  # slow to import, and needed for figures only
    from matplotlib.figure import Figure

    library: Any = matplotlib
    with library.rc_context(STYLE):
        figure: Any = Figure(layout="constrained")
        yield figure
        for path in paths:
            stamp = {"Date": None} if path.suffix == ".svg" else {}
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format=path.suffix[1:], dpi=200, metadata=stamp)


def colour_of(number: int) -> str:
    """The colour of the line with this number."""
    return COLOURS[number % len(COLOURS)]


def marker_of(number: int) -> str:
    """The marker of the line with this number."""
    return MARKERS[number % len(MARKERS)]


def title(figure: Figure, text: str) -> None:
    """The title of a whole figure."""
    figure.suptitle(text, x=0.01, ha="left")


def legend(axes: Axes) -> None:
    """Add a legend if there are labels."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend()


def legend_below(figure: Figure, panels: Sequence[Axes]) -> None:
    """Add one legend for all panels below them."""
    entries = {
        label: line
        for axes in panels
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    columns = min(len(entries), 5 if len(panels) > 1 else 3)
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns)


def plain_numbers(side: Any) -> None:
    """Label a logarithmic x or y axis with plain numbers (0.02, 5, 10) instead of powers."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    low, high = side.get_view_interval()
    narrow = high < 6 * low
    side.set_major_locator(LogLocator(subs=(1, 1.5, *range(2, 10)) if narrow else (1, 2, 3, 5)))
    side.set_major_formatter(StrMethodFormatter("{x:g}"))
    side.set_minor_locator(NullLocator())
