"""Figures of a table's numbers: bars, and lines over depth or size, ours next to the paper's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kutta.plotting import GREY, Axes, Figure, colour_of, legend, marker_of
from kutta.reproduce.perform import Result
from kutta.reproduce.plan import Plan
from kutta.reproduce.results import Cell, Cells, run_cells


@dataclass(frozen=True)
class Side:
    """A panel: our means, or the paper's numbers."""

    title: str
    ours: bool

    def value(self, cell: Cell) -> float | None:
        return cell.mean if self.ours else cell.published


def _sides(plan: Plan, cells: Cells) -> list[Side]:
    """Ours, and the paper's where it has numbers."""
    sides = [Side(f"ours: {plan.scale.corpus}", ours=True)]
    if any(cell.published is not None for cell in cells.values()):
        paper = plan.experiment.scales.get("paper")
        sides.append(Side("the paper" + (f": {paper.corpus}" if paper else ""), ours=False))
    return sides


def bars(figure: Figure, plan: Plan, results: Mapping[str, Result]) -> None:
    """A bar for each row, a row of panels for each column, ours next to the paper's."""
    experiment, cells = plan.experiment, run_cells(plan, results)
    sides = _sides(plan, cells)
    rows = len({cell.row for cell in cells.values()})
    height = len(experiment.columns) * (0.27 * rows + 0.9) + 0.3
    figure.set_size_inches(3.9 * len(sides) + 0.6, height)
    grid = figure.subplots(len(experiment.columns), len(sides), squeeze=False, sharey="row")
    for line, (key, place) in zip(grid, experiment.columns.items(), strict=True):
        column = [cell for cell in cells.values() if cell.column == key]
        for axes, side in zip(line, sides, strict=True):
            _bar_panel(axes, plan, column, side)
            dots = " (dots: seeds)" if side.ours and len(plan.seeds) > 1 else ""
            axes.set_title(f"{place.name_at(plan.scale_name)}, {side.title}{dots}")
        names = [experiment.rows[cell.row].name_at(plan.scale_name) for cell in column]
        line[0].set_yticks(range(len(names)), names)
        line[0].set_ylim(len(names) - 0.4, -0.6)  # from top to bottom, as in the table
    for axes in grid[-1]:
        cut = " (the axis does not start at 0)" if axes.get_xlim()[0] > 0 else ""
        axes.set_xlabel(f"{experiment.metric}{cut}")


def _bar_panel(axes: Axes, plan: Plan, column: list[Cell], side: Side) -> None:
    """Bars of the means with dots for the seeds; rows that are compared with another in colour."""
    known = [(i, cell, v) for i, cell in enumerate(column) if (v := side.value(cell)) is not None]
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    if not known:
        axes.text(0.5, 0.5, "no finished run yet", transform=axes.transAxes, ha="center")
        axes.set_xticks([])
        return
    seeds = {index: cell.scores if side.ours else () for index, cell, _ in known}
    ends = [end for index, _, value in known for end in (value, *seeds[index])]
    span = (max(ends) - min(ends)) or abs(max(ends)) * 0.1 or 1.0
    for index, cell, value in known:
        against = plan.experiment.rows[cell.row].against
        axes.barh(index, value, height=0.62, color=colour_of(0) if against else GREY)
        if len(seeds[index]) > 1:
            axes.plot(seeds[index], [index] * len(seeds[index]), ".", color="black", ms=4)
        right = max(value, *seeds[index], value) + 0.03 * span
        axes.text(right, index, f"{value:.2f}", va="center", fontsize=8)
    axes.set_xlim(max(0.0, min(ends) - 0.45 * span), max(ends) + 0.28 * span)
    axes.locator_params(axis="x", nbins=6)


def lines(figure: Figure, plan: Plan, results: Mapping[str, Result]) -> None:
    """A line for each row over the x values of the columns."""
    columns = plan.experiment.columns
    _line_panels(figure, plan, results, lambda c: columns[c.column].at_scale(plan.scale_name))


def against_parameters(figure: Figure, plan: Plan, results: Mapping[str, Result]) -> None:
    """A line for each row over the number of parameters: ours counted, the paper's as published."""
    _line_panels(
        figure, plan, results, lambda c: c.parameters / 1e6 if c.parameters is not None else None
    )


Point = tuple[float, float, float]  # x, mean, deviation


def _line_panels(
    figure: Figure,
    plan: Plan,
    results: Mapping[str, Result],
    ours_at: Callable[[Cell], float | None],
) -> None:
    """Lines over x, ours next to the paper's; `ours_at` gives the x value of a cell."""
    experiment, cells = plan.experiment, run_cells(plan, results)
    sides = _sides(plan, cells)
    figure.set_size_inches(3.7 * len(sides) + 0.4, 3.3)
    panels = figure.subplots(1, len(sides), squeeze=False)[0]
    for axes, side in zip(panels, sides, strict=True):
        lines: dict[str, list[Point]] = {key: [] for key in experiment.rows}
        for cell in cells.values():
            x = ours_at(cell) if side.ours else experiment.columns[cell.column].at
            y, spread = side.value(cell), cell.deviation if side.ours else None
            if x is not None and y is not None:
                lines[cell.row].append((x, y, spread or 0.0))
        places = sorted({x for points in lines.values() for x, _, _ in points})
        width = places[-1] - places[0] if places and side.ours else 0.0
        for number, (key, points) in enumerate(lines.items()):
            shift = (number - (len(lines) - 1) / 2) * 0.012 * width
            _line(axes, sorted(points), number, experiment.rows[key].name, shift)
        if "lines" in experiment.figures:
            axes.set_xticks(places)
        axes.set(title=side.title, xlabel=experiment.axis, ylabel=experiment.metric)
    legend(panels[-1])


def _line(axes: Axes, points: list[Point], look: int, label: str, shift: float) -> None:
    """A line through means with error bars, shifted a little so that these do not overlap."""
    if points:
        xs, ys, spread = zip(*points, strict=True)
        xs = [x + shift for x in xs]
        colour = colour_of(look)
        axes.plot(xs, ys, color=colour, marker=marker_of(look), label=label)
        if any(spread):
            axes.errorbar(xs, ys, yerr=spread, fmt="none", ecolor=colour, capsize=2, lw=1)
