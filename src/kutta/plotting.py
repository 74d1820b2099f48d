"""How figures look, and how they are saved: what every picture of Kutta has in common."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kutta.files import atomic_path

# Okabe and Ito's colours, which the colour-blind tell apart; markers tell them apart in print.
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
# matplotlib has no types of its own worth the name, and is loaded when a picture is drawn.
Figure = Any
Axes = Any


@contextmanager
def new_figure(*paths: Path) -> Generator[Figure]:
    """A figure in this style to draw on; in the end it is saved to every path, .png or .svg."""
    import matplotlib  # slow to import, and needed for pictures only
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
    """A legend, where there is anything to name."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend()


def legend_below(figure: Figure, panels: Sequence[Axes]) -> None:
    """One legend for all panels, out of their way."""
    entries = {
        label: line
        for axes in panels
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    columns = min(len(entries), 5 if len(panels) > 1 else 3)
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns)


def plain_numbers(side: Any) -> None:
    """Write the numbers of a logarithmic x or y axis as people do: 0.02, 5, 10; no powers."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    low, high = side.get_view_interval()
    narrow = high < 6 * low
    side.set_major_locator(LogLocator(subs=(1, 1.5, *range(2, 10)) if narrow else (1, 2, 3, 5)))
    side.set_major_formatter(StrMethodFormatter("{x:g}"))
    side.set_minor_locator(NullLocator())
