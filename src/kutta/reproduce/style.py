"""How figures look: colours, markers, and what all of them share."""

from typing import Any

# Okabe and Ito's colours, which the colour-blind tell apart; markers tell them apart in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#8C8C8C"

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "kutta",  # equal figures are equal files
}
# matplotlib has no types of its own worth the name: an axes is Any here and nowhere else.
Axes = Any


def colour_of(number: int) -> str:
    """The colour of the line with this number."""
    return COLOURS[number % len(COLOURS)]


def marker_of(number: int) -> str:
    """The marker of the line with this number."""
    return MARKERS[number % len(MARKERS)]


def legend(axes: Axes) -> None:
    """A legend, where there is anything to name."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
