"""Draw the README's picture: a residual block, an RK2 block and an RK4 block as wiring diagrams.

    python docs/figures/blocks.py        # writes blocks.svg and blocks.png beside this file

A block is data (its coefficients); one function draws any explicit method whose stages each look
back one stage. Coordinates are pixels of the picture at its width in the README.
"""

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, PathPatch
from matplotlib.path import Path as Outline

WIDTH, HEIGHT = 900, 724
PANEL_WIDTH, PANEL_BOTTOM, PANEL_TOP = 280, 58, 709
LEFT, CENTRE, RIGHT = 40, 140, 240  # the rails of y, of the stages and of the step, in a panel
ENTRY, EXIT = 194, 594  # where y_t branches, and where the step is added to it
PLUS = 9.0  # radius of a sum
ARROW = 7.0  # length of an arrowhead
BOX = (36.0, 16.0)  # half the width and height of F

INK, SOFT, PANEL, FRAME = "#1f2937", "#6b7280", "#f6f7fb", "#d8dce6"
STATE, FIELD, STAGE, STEP = "#64748b", "#4f46e5", "#c2570c", "#0f766e"
MIDDLE = {"ha": "center", "va": "center_baseline"}


@dataclass(frozen=True)
class Diagram:
    """An explicit method: `beta[i]` leads from stage i to stage i + 1, `gamma[i]` into the step."""

    title: str
    subtitle: str
    beta: tuple[str, ...]
    gamma: tuple[str, ...]
    equation: str
    stages: tuple[str, ...]


BLOCKS = (
    Diagram(
        "Residual block (Euler)",
        "first order, F once",
        (),
        ("1",),
        r"$y_{t{+}1} = y_t + F_1$",
        (r"$F_1 = F(y_t)$",),
    ),
    Diagram(
        "RK2 block",
        "second order, F twice",
        ("1",),
        ("1/2", "1/2"),
        r"$y_{t{+}1} = y_t + \frac{1}{2}\,(F_1 + F_2)$",
        (r"$F_1 = F(y_t) \quad F_2 = F(y_t + F_1)$",),
    ),
    Diagram(
        "RK4 block",
        "fourth order, F four times",
        ("1/2", "1/2", "1"),
        ("1/6", "2/6", "2/6", "1/6"),
        r"$y_{t{+}1} = y_t + \frac{1}{6}\,(F_1 + 2F_2 + 2F_3 + F_4)$",
        (
            r"$F_1 = F(y_t) \quad F_2 = F(y_t + \frac{1}{2}F_1)$",
            r"$F_3 = F(y_t + \frac{1}{2}F_2) \quad F_4 = F(y_t + F_3)$",
        ),
    ),
)


def rounded(axes: Axes, x: float, y: float, width: float, height: float, radius: float, **style):
    """A rectangle with round corners, from its lower left corner."""
    shape = f"round,pad=0,rounding_size={radius}"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=shape, **style))


def wire(axes: Axes, points: list[tuple[float, float]], colour: str, arrow: bool = True):
    """A line through right-angled `points` with round corners, and an arrowhead at its end."""
    radius = 10.0
    vertices, codes = [points[0]], [Outline.MOVETO]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        for end in (before, after):
            dx, dy = end[0] - corner[0], end[1] - corner[1]
            scale = radius / (abs(dx) + abs(dy))
            vertices.append((corner[0] + scale * dx, corner[1] + scale * dy))
        vertices.insert(-1, corner)
        codes += [Outline.LINETO, Outline.CURVE3, Outline.CURVE3]
    (x0, y0), (x1, y1) = vertices[-1], points[-1]
    vertices.append((x1, y1))
    codes.append(Outline.LINETO)
    style = {"edgecolor": colour, "linewidth": 1.7, "capstyle": "round", "zorder": 2}
    axes.add_patch(PathPatch(Outline(vertices, codes), fill=False, **style))
    if arrow:
        length = abs(x1 - x0) + abs(y1 - y0)
        tail = (x1 - ARROW * (x1 - x0) / length, y1 - ARROW * (y1 - y0) / length)
        head = {"arrowstyle": "-|>,head_length=0.55,head_width=0.28", "mutation_scale": 11}
        axes.add_patch(
            FancyArrowPatch(
                tail, (x1, y1), shrinkA=0, shrinkB=0, color=colour, linewidth=0, zorder=3, **head
            )
        )


def plus(axes: Axes, x: float, y: float, colour: str):
    """A sum."""
    style = {"facecolor": "white", "edgecolor": colour, "linewidth": 1.5, "zorder": 4}
    axes.add_patch(Circle((x, y), PLUS, **style))
    for dx, dy in ((4.5, 0), (0, 4.5)):
        axes.plot([x - dx, x + dx], [y - dy, y + dy], color=colour, linewidth=1.5, zorder=5)


def dot(axes: Axes, x: float, y: float):
    """A place where the wire of y branches."""
    axes.add_patch(Circle((x, y), 3, color=STATE, zorder=4))


def chip(axes: Axes, x: float, y: float, label: str, colour: str):
    """A coefficient that sits on its wire."""
    width = 20 if len(label) == 1 else 30
    style = {"facecolor": "white", "edgecolor": colour, "linewidth": 1.1, "zorder": 6}
    rounded(axes, x - width / 2, y - 9, width, 18, 9, **style)
    axes.text(x, y - 0.5, label, color=colour, fontsize=9, fontweight="bold", zorder=7, **MIDDLE)


def field(axes: Axes, x: float, y: float, label: str):
    """The vector field F: the same colour wherever the same parameters work."""
    width, height = BOX
    rounded(axes, x - width, y - height, 2 * width, 2 * height, 8, facecolor=FIELD, zorder=4, lw=0)
    axes.text(x, y, label, color="white", fontsize=13, zorder=5, **MIDDLE)


def draw(axes: Axes, block: Diagram, x: float):
    """One panel with its left edge at `x`: words above, wiring, words below."""
    middle = x + CENTRE
    height = PANEL_TOP - PANEL_BOTTOM
    rounded(axes, x, PANEL_BOTTOM, PANEL_WIDTH, height, 12, facecolor=PANEL, lw=0, zorder=1)
    title = {"color": INK, "fontsize": 12, "fontweight": "bold"}
    axes.text(middle, PANEL_TOP - 24, block.title, **title, **MIDDLE)
    axes.text(middle, PANEL_TOP - 44, block.subtitle, color=SOFT, fontsize=9, **MIDDLE)

    pitch = (EXIT - ENTRY) / len(block.gamma)
    heights = [ENTRY + (i + 0.5) * pitch for i in range(len(block.gamma))]
    draw_state(axes, x, heights)
    draw_stages(axes, x, heights, block.beta)
    draw_step(axes, x, heights, block.gamma)

    axes.text(middle, 129, block.equation, color=INK, fontsize=12, **MIDDLE)
    for row, line in enumerate(block.stages):
        axes.text(middle, 101 - 21 * row, line, color=SOFT, fontsize=10, **MIDDLE)


def draw_state(axes: Axes, x: float, heights: list[float]):
    """The residual path: from y_t up the left rail, past every stage, to y_t+1."""
    left, centre = x + LEFT, x + CENTRE
    axes.text(centre, ENTRY - 31, "$y_t$", color=INK, fontsize=14, **MIDDLE)
    wire(axes, [(centre, ENTRY - 20), (centre, heights[0] - BOX[1])], STATE)
    wire(axes, [(centre, ENTRY), (left, ENTRY), (left, EXIT), (centre - PLUS, EXIT)], STATE)
    wire(axes, [(centre, EXIT + PLUS), (centre, EXIT + 30)], STATE)
    plus(axes, centre, EXIT, STATE)
    dot(axes, centre, ENTRY)
    axes.text(centre, EXIT + 46, "$y_{t{+}1}$", color=INK, fontsize=14, **MIDDLE)


def draw_stages(axes: Axes, x: float, heights: list[float], beta: tuple[str, ...]):
    """The middle column: each stage reads y_t plus its share of the stage before."""
    left, centre = x + LEFT, x + CENTRE
    for number, y in enumerate(heights, start=1):
        field(axes, centre, y, f"$F_{number}$")
    for below, above, label in zip(heights[:-1], heights[1:], beta, strict=True):
        top, node = below + BOX[1], above - BOX[1] - 14 - PLUS
        wire(axes, [(left, node), (centre - PLUS, node)], STATE)
        wire(axes, [(centre, top), (centre, node - PLUS)], STAGE)
        wire(axes, [(centre, node + PLUS), (centre, above - BOX[1])], STATE)
        chip(axes, centre, (top + node - PLUS - ARROW) / 2, label, STAGE)
        plus(axes, centre, node, STATE)
        dot(axes, left, node)


def draw_step(axes: Axes, x: float, heights: list[float], gamma: tuple[str, ...]):
    """The right rail: every stage adds its share to the step."""
    start, right, centre = x + CENTRE + BOX[0], x + RIGHT, x + CENTRE
    rail = [(start, heights[0]), (right, heights[0])]
    for y in heights[1:]:
        wire(axes, [(start, y), (right - PLUS, y)], STEP)
        wire(axes, [*rail, (right, y - PLUS)], STEP)
        plus(axes, right, y, STEP)
        rail = [(right, y + PLUS)]
    wire(axes, [*rail, (right, EXIT), (centre + PLUS, EXIT)], STEP)
    for y, label in zip(heights, gamma, strict=True):
        chip(axes, (start + right - PLUS - ARROW) / 2, y, label, STEP)


def legend(axes: Axes, y: float):
    """What the colours mean, in one row."""
    rounded(axes, 26, y - 8, 24, 16, 4, facecolor=FIELD, lw=0, zorder=4)
    chip(axes, 441, y, "β", STAGE)
    chip(axes, 679, y, "γ", STEP)
    for x, label in (
        (58, "one F per block: every stage uses the same parameters"),
        (458, "share of a stage in the next"),
        (696, "share of a stage in the step"),
    ):
        axes.text(x, y, label, color=INK, fontsize=8.5, ha="left", va="center_baseline")


def main():
    style = {"mathtext.fontset": "stix", "font.family": "DejaVu Sans", "svg.hashsalt": "kutta"}
    with plt.rc_context(style):
        figure = plt.figure(figsize=(WIDTH / 100, HEIGHT / 100), facecolor="none")
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT))
        axes.axis("off")
        rounded(axes, 1, 1, WIDTH - 2, HEIGHT - 2, 18, facecolor="white", edgecolor=FRAME, zorder=0)
        gap = (WIDTH - 3 * PANEL_WIDTH) / 4
        for number, block in enumerate(BLOCKS):
            draw(axes, block, gap + number * (PANEL_WIDTH + gap))
        legend(axes, 30)
        here = Path(__file__).parent
        figure.savefig(here / "blocks.svg", metadata={"Date": None})
        figure.savefig(here / "blocks.png", dpi=200)


if __name__ == "__main__":
    main()
