"""The figures of the analyses: one function per analysis, from its JSON to a figure."""

import math
from collections.abc import Sequence
from typing import Any

from kutta import plotting
from kutta.analysis.tables import groups
from kutta.plotting import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Axes,
    Figure,
    colour_of,
    legend_below,
    plain_numbers,
)

_METHODS = {"euler": (RED, "s"), "rk2": (BLUE, "^"), "rk4": (GREEN, "D")}
_OTHERS = ((PURPLE, "v"), (ORANGE, "P"), (SKY, "X"))

Result = dict[str, Any]
Rows = list[dict[str, Any]]


def draw_truncation(figure: Figure, result: Result) -> None:
    """Error by block: of the block's own step, and of other methods at the same state."""
    panels = groups(result["rows"], "stack", "view")
    axes = _panels(figure, result, len(panels), "local truncation error of every block")
    for axis, ((stack, view), rows) in zip(axes, panels.items(), strict=True):
        labels = _block_names(rows)
        learned = any(row["time"] == "own" for row in rows)
        main = "own" if learned else "1"
        for method, (colour, marker) in _METHODS.items():
            _band(axis, rows, labels, method, main, colour, marker, method)
        own = "own step"
        _band(axis, rows, labels, "own", main, BLACK, "o", own, fill="none", size=9)
        if learned:
            _band(axis, rows, labels, "own", "1", BLACK, ".", f"{own}, against T = 1", line=":")
        title = f"{stack}, by {view}" + (" (T: the block's own time)" if learned else " (T = 1)")
        axis.set(title=title, yscale="log", ylabel="error / length of the step")
        _label_blocks(axis, labels)
    drawn = [row[key] for row in result["rows"] for key in ("low", "high") if row[key]]
    for axis in axes if drawn else []:  # errors are all relative to a step, so they share a scale
        axis.set_ylim(min(drawn) / 2, max(drawn) * 2)
    legend_below(figure, axes)


def draw_blocks(figure: Figure, result: Result) -> None:
    """Lengths, directions and coefficients by block, a column for each stack."""
    panels = groups(result["rows"], "stack")
    grid = _grid(figure, result, 3, len(panels), "what every block does")
    for column, ((stack,), rows) in enumerate(panels.items()):
        labels = _block_names(rows)
        at = range(len(rows))
        lengths, angles, learned = (grid[row][column] for row in range(3))
        lengths.plot(at, [r["state"] for r in rows], "o-", color=BLACK, label="state |y|")
        lengths.plot(at, [r["step"] for r in rows], "s--", color=GREY, label="step |y' - y|")
        stages = max(len(r["stages"]) for r in rows)
        for i in range(stages):
            colour = colour_of(i)
            lengths.plot(*_of_stage(rows, "stages", i), "^-", color=colour, label=f"|F{i + 1}|")
            if i:
                cosines = _of_stage(rows, "cosine_to_first", i)
                angles.plot(*cosines, "^-", color=colour, label=f"F1, F{i + 1}")
        cosines = [r["cosine_to_state"] for r in rows]
        angles.plot(at, cosines, "o-", color=BLACK, label="y, y' - y")
        angles.axhline(0.0, color="0.6", linewidth=0.8)
        _draw_coefficients(learned, rows)
        lengths.set(title=stack, ylabel="length per token", yscale="log")
        plain_numbers(lengths.yaxis)
        angles.set(ylabel="cosine", ylim=(-1.05, 1.05))
        learned.set(ylabel="coefficients, time T", ylim=_with_zero(learned.get_ylim()))
        for axis in (lengths, angles, learned):
            axis.legend(ncols=2)
            _label_blocks(axis, labels)


def draw_gradients(figure: Figure, result: Result) -> None:
    """Gradient norms by block and, where the log has them, by step of training."""
    panels = groups(result["rows"], "stack")
    steps = result["steps"]
    axes = _panels(figure, result, len(panels) + bool(steps), "gradient norms")
    for axis, ((stack,), rows) in zip(axes, panels.items(), strict=False):
        at = range(len(rows))
        state, theta = (
            r"$|\partial L/\partial y|$ at the input",
            r"$|\partial L/\partial\theta|$",
        )
        axis.plot(at, [r["state"] for r in rows], "o-", color=BLUE, label=state)
        axis.plot(at, [r["parameters"] for r in rows], "s--", color=RED, label=theta)
        axis.set(title=stack, ylabel="gradient norm", yscale="log")
        plain_numbers(axis.yaxis)
        _label_blocks(axis, _block_names(rows))
    legend_below(figure, axes)
    if steps:
        axis = axes[len(panels)]
        axis.plot([r["step"] for r in steps], [r["grad_norm"] for r in steps], color=BLACK)
        axis.set(title="the whole model, in training", xlabel="step", ylabel="gradient norm")
        axis.set_yscale("log")
        plain_numbers(axis.yaxis)


def draw_embedding(figure: Figure, result: Result) -> None:
    """How much of the input token is left by block, and of others; a panel per stack."""
    panels = groups(result["rows"], "stack")
    tied = "tied" if result["tied"] else "not tied"
    title = f"what is left of the input token's embedding e (output layer {tied})"
    axes = _panels(figure, result, len(panels), title)
    for axis, ((stack,), rows) in zip(axes, panels.items(), strict=True):
        at = range(len(rows))
        own, low, high, others, excess, cosine = (
            [math.nan if row[key] is None else row[key] for row in rows]
            for key in ("coefficient", "low", "high", "others", "excess", "cosine")
        )
        axis.axhline(0.0, color="0.6", linewidth=0.8)
        axis.plot(at, own, "o-", color=BLUE, label="coefficient <y, e> / <e, e>")
        axis.fill_between(at, low, high, color=BLUE, alpha=0.12, linewidth=0)
        axis.plot(at, others, "s--", color=ORANGE, label="coefficient of other tokens")
        axis.plot(at, excess, "D-", color=GREEN, label="excess over them")
        axis.plot(at, cosine, "^:", color=RED, label="cosine of y and e")
        axis.set(title=stack, ylabel="coefficient, cosine")
        _label_blocks(axis, _block_names(rows))
    legend_below(figure, axes)


def draw_inference(figure: Figure, result: Result) -> None:
    """Perplexity over multiply-adds, relative to the model as trained; a panel per stack."""
    trained, *others = result["rows"]
    panels = groups(others, "stack")
    axes = _panels(figure, result, len(panels), "the same weights under other methods")
    for axis, ((stack,), rows) in zip(axes, panels.items(), strict=True):
        axis.axhline(trained["perplexity"], color=BLACK, linestyle=":", linewidth=1)
        axis.plot(1.0, trained["perplexity"], "*", color=BLACK, markersize=12, label="as trained")
        extra = iter(_OTHERS)
        learned = any(row["time"] == "own" for row in rows)
        for (method,), of_method in groups(rows, "method").items():
            colour, marker = _METHODS.get(method) or next(extra, (BLACK, "o"))
            for time, of_time in groups(of_method, "time").items():
                single = learned and time == ("1",)
                axis.plot(
                    [r["multiply_adds"] / trained["multiply_adds"] for r in of_time],
                    [r["perplexity"] for r in of_time],
                    f"{marker}-",
                    color=colour,
                    fillstyle="none" if single else "full",
                    label=f"{method}, T = 1" if single else method,
                )
        axis.set(xlabel="multiply-adds, 1 = as trained", ylabel="perplexity per token")
        values = [row["perplexity"] for row in (trained, *rows) if row["perplexity"]]
        wide = max(values, default=1) > 2 * min(values, default=1)
        axis.set(title=f"{stack}: 1, 2 and 4 substeps", xscale="log")
        plain_numbers(axis.xaxis)
        if wide:
            axis.set_yscale("log")
            plain_numbers(axis.yaxis)
    legend_below(figure, axes)


def _draw_coefficients(axis: Axes, rows: Rows) -> None:
    """Each learned coefficient by block; where they are many (DLCL), in one colour."""
    if any(r["time"] is not None for r in rows):
        axis.plot(range(len(rows)), [r["time"] for r in rows], "o-", color=BLACK, label="time T")
    names = dict.fromkeys(name for row in rows for name in row["coefficients"])
    for name in names:
        if name == "gamma_deviation":
            continue
        widest = max(len(row["coefficients"].get(name, ())) for row in rows)
        for i in range(widest):
            points = [
                (n, row["coefficients"][name][i])
                for n, row in enumerate(rows)
                if i < len(row["coefficients"].get(name, ()))
            ]
            colour = colour_of(i)
            label = f"{name} {i + 1}" if widest > 1 else name
            axis.plot(*zip(*points, strict=True), "^--", color=colour, label=label)


def _band(
    axis: Axes,
    rows: Rows,
    labels: list[str],
    method: str,
    time: str,
    colour: str,
    marker: str,
    label: str,
    line: str = "-",
    fill: str = "full",
    size: float = 5,
) -> None:
    """The median of one method by block, and the range of 10 to 90% of the sentences."""
    names = {name: number for number, name in enumerate(labels)}
    # A block whose time is 1 anyway has no rows of its own time.
    chosen = {
        names[_name(row)]: row
        for wanted in ("1", time)
        for row in rows
        if row["method"] == method and row["time"] == wanted and row.get("error")
    }
    at = sorted(chosen)
    axis.plot(
        at,
        [chosen[i]["error"] for i in at],
        color=colour,
        marker=marker,
        linestyle=line,
        fillstyle=fill,
        markersize=size,
        label=label,
    )
    low, high = ([chosen[i][key] for i in at] for key in ("low", "high"))
    axis.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)


def _of_stage(rows: Rows, key: str, stage: int) -> tuple[list[int], list[float]]:
    chosen = [(n, row[key][stage]) for n, row in enumerate(rows) if stage < len(row[key])]
    return [n for n, _ in chosen], [value for _, value in chosen]


def _name(row: dict[str, Any]) -> str:
    return f"{row['layer']}\n{row['sublayers']}"


def _block_names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(_name(row) for row in rows))


def _label_blocks(axis: Axes, labels: Sequence[str]) -> None:
    """Label blocks by layer and sublayers; only by layer if all have the same sublayers."""
    same = len({label.split("\n")[1] for label in labels}) == 1
    shown = [label.split("\n")[0] if same else label for label in labels]
    axis.set_xticks(range(len(labels)), shown, fontsize="small" if len(labels) < 13 else "x-small")
    axis.set_xlabel(f"layer ({labels[0].split(chr(10))[1]})" if same else "layer and sublayer")


def _with_zero(limits: tuple[float, float]) -> tuple[float, float]:
    """Limits that include 0, so that a constant looks like one."""
    return min(0.0, limits[0]), max(0.0, limits[1])


def _panels(figure: Figure, result: Result, count: int, title: str) -> list[Axes]:
    """This many panels, two per row; an odd last one spans the row."""
    rows = [[n, min(n + 1, count - 1)] for n in range(0, count, 2)] if count > 1 else [[0]]
    figure.set_size_inches(5.6 * len(rows[0]) + 0.4, 3.1 * len(rows) + 1.0)
    plotting.title(figure, f"{result['run']}: {title}")
    panels = figure.subplot_mosaic(rows)
    return [panels[n] for n in range(count)]


def _grid(figure: Figure, result: Result, rows: int, columns: int, title: str) -> Any:
    figure.set_size_inches(5.6 * columns + 0.4, 3.1 * rows + 0.6)
    plotting.title(figure, f"{result['run']}: {title}")
    return figure.subplots(rows, columns, squeeze=False)
