"""Figures of training records: perplexity by epoch, gradient norm by step."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from kutta.plotting import Axes, Figure, colour_of, legend_below, plain_numbers
from kutta.reproduce.perform import Result
from kutta.reproduce.plan import Plan
from kutta.runs.run import METRICS, read_records

Points = dict[float, list[float]]  # x -> the value of each seed


def curves(figure: Figure, plan: Plan, results: Mapping[str, Result]) -> None:
    """Perplexity by epoch, training and validation, a panel for each column."""
    panels = _panels(figure, plan)
    for axes, key in zip(panels, plan.experiment.columns, strict=True):
        for number, row in enumerate(plan.experiment.rows):
            name = plan.experiment.rows[row].name_at(plan.scale_name)
            for kind, line, label in (("train", "--", ""), ("valid", "-", name)):
                points = _logged(plan, results, row, key, kind, "perplexity", by_epoch=True)
                _curve(axes, points, colour_of(number), line, label)
        axes.set(xlabel="epoch", ylabel="perplexity (dashed: training)", yscale="log")
        _fit_to_late(axes)
        plain_numbers(axes.yaxis)
    legend_below(figure, panels)


def gradients(figure: Figure, plan: Plan, results: Mapping[str, Result]) -> None:
    """The norm of the gradient by step, a panel for each column."""
    panels = _panels(figure, plan)
    for axes, key in zip(panels, plan.experiment.columns, strict=True):
        for number, row in enumerate(plan.experiment.rows):
            name = plan.experiment.rows[row].name_at(plan.scale_name)
            points = _logged(plan, results, row, key, "train", "grad_norm", by_epoch=False)
            _curve(axes, points, colour_of(number), "-", name)
        axes.set(xlabel="step", ylabel="norm of the gradient", yscale="log")
        plain_numbers(axes.yaxis)
    legend_below(figure, panels)


def _panels(figure: Figure, plan: Plan) -> Sequence[Axes]:
    columns = plan.experiment.columns
    figure.set_size_inches(max(3.6 * len(columns), 5.2), 3.4)
    panels: Sequence[Axes] = figure.subplots(1, len(columns), squeeze=False)[0]
    for axes, column in zip(panels, columns.values(), strict=True):
        axes.set_title(f"{column.name_at(plan.scale_name)}: {plan.scale.corpus}")
    return panels


def _logged(
    plan: Plan,
    results: Mapping[str, Result],
    row: str,
    column: str,
    kind: str,
    key: str,
    by_epoch: bool,
) -> Points:
    """The records of a cell's finished runs, of all seeds."""
    points: Points = {}
    for run in plan.runs:
        result = results.get(run.name)
        if (run.row, run.column) != (row, column) or result is None:
            continue
        unit = result.steps / result.epochs if by_epoch else 1.0
        for record in read_records(plan.folder / "runs" / run.name / METRICS):
            if record["kind"] == kind and record[key] is not None:
                points.setdefault(record["step"] / unit, []).append(record[key])
    return points


def _curve(axes: Axes, points: Points, colour: str, line: str, label: str) -> None:
    """The mean over seeds, and their range as a shaded area."""
    xs = sorted(points)
    if not xs:
        return
    axes.plot(xs, [fmean(points[x]) for x in xs], line, color=colour, label=label)
    if max(map(len, points.values())) > 1:
        low, high = [min(points[x]) for x in xs], [max(points[x]) for x in xs]
        axes.fill_between(xs, low, high, color=colour, alpha=0.15, lw=0)


def _fit_to_late(axes: Axes) -> None:
    """Fit the y axis to all but the first tenth of each curve, which would flatten the rest."""
    late: list[float] = []
    for line in axes.get_lines():
        values: list[float] = list(line.get_ydata())
        late += values[len(values) // 10 :]
    if late:
        axes.set_ylim(min(late) * 0.93, max(late) * 1.05)
