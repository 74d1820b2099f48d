"""The table of a reproduction, ours next to the paper's: for the terminal, text and Markdown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from textwrap import fill
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kutta.metrics.texts import tokenised
from kutta.reproduce.claims import Verdict
from kutta.reproduce.experiment import Column, Experiment, Row
from kutta.reproduce.perform import Result
from kutta.reproduce.plan import Plan
from kutta.reproduce.results import Cell, Cells, cells_of, gain, unfinished, verdicts_of

WIDTH = 110  # of table.txt
_SHOWN = 8  # missing runs listed by name


@dataclass(frozen=True)
class TableRow:
    """A formatted row of the table, and whether ours and the paper's are the best."""

    name: str
    ours: str
    our_gain: str
    published: str
    published_gain: str
    others: tuple[str, ...]  # ours and the paper's by each further metric
    seeds: str
    parameters: str
    best: bool
    published_best: bool


@dataclass(frozen=True)
class Report:
    """The contents of the table, independent of the output format."""

    title: str
    metrics: list[str]
    parts: dict[str, list[TableRow]]  # by the name of the column
    has_published: bool
    verdicts: list[Verdict]
    notes: list[str]


def report_of(plan: Plan, results: Mapping[str, Result]) -> Report:
    """The table of the available results, with its notes."""
    experiment = plan.experiment
    cells, *further = (cells_of(plan, results, n) for n in range(len(experiment.metrics)))
    parts = {
        _heading(plan, column): [
            _table_row(plan, cells, further, cell) for cell in cells.values() if cell.column == key
        ]
        for key, column in experiment.columns.items()
    }
    return Report(
        title=f"{experiment.title} (scale {plan.scale_name}: {plan.scale.corpus})",
        metrics=[*experiment.metrics],
        parts=parts,
        has_published=any(cell.published is not None for cell in cells.values()),
        verdicts=verdicts_of(plan, results),
        notes=_notes(plan, results),
    )


def _heading(plan: Plan, column: Column) -> str:
    """The name of a column at this scale; if it differs, the paper's too."""
    here = column.name_at(plan.scale_name)
    return here if here == column.name else f"{here} (the paper: {column.name})"


def _table_row(plan: Plan, cells: Cells, further: list[Cells], cell: Cell) -> TableRow:
    experiment = plan.experiment
    row = experiment.rows[cell.row]
    column = [other for other in cells.values() if other.column == cell.column]
    size = "" if cell.parameters is None else short_count(cell.parameters)
    others = [other[cell.row, cell.column] for other in further]
    return TableRow(
        name=row.name_at(plan.scale_name),
        ours=_ours(row, cell),
        our_gain=_signed(gain(cells, cell, row.against, ours=True)),
        published=_value(cell.published),
        published_gain=_signed(gain(cells, cell, row.against, ours=False)),
        others=tuple(text for c in others for text in (_ours(row, c), _value(c.published))),
        seeds="" if row.quoted else _part(len(cell.scores), cell.planned),
        parameters=size or row.size,
        best=_is_best(experiment, cell, column, lambda c: c.mean),
        published_best=_is_best(experiment, cell, column, lambda c: c.published),
    )


def _is_best(
    experiment: Experiment, cell: Cell, column: list[Cell], value: Callable[[Cell], float | None]
) -> bool:
    """Whether no other cell of its column is better; false for a single one."""
    known = [number for other in column if (number := value(other)) is not None]
    if experiment.better == "neither" or len(known) < 2:
        return False
    return value(cell) == (max(known) if experiment.better == "higher" else min(known))


def _ours(row: Row, cell: Cell) -> str:
    if row.quoted:
        return ""
    return _value(cell.mean) + ("" if cell.deviation is None else f" ± {cell.deviation:.2f}")


def _value(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def _signed(number: float | None) -> str:
    return "" if number is None else f"{number:+.2f}"


def _part(done: int, planned: int) -> str:
    return str(done) if done == planned else f"{done} of {planned}"


def short_count(number: int) -> str:
    """A number of parameters in millions."""
    return f"{number / 1e6:.1f}M" if number < 10e6 else f"{number / 1e6:.0f}M"


# ---- notes ----------------------------------------------------------------------------------


def _notes(plan: Plan, results: Mapping[str, Result]) -> list[str]:
    experiment = plan.experiment
    notes = [plan.scale.note.strip()] if plan.scale.note else []
    notes.append(f"{experiment.metric}: {_direction(experiment)}.")
    if len(plan.seeds) > 1:
        notes.append("± is the standard deviation over seeds (n - 1).")
    bases = [experiment.rows[key].name_at(plan.scale_name) for key in _bases(experiment)]
    if bases:
        to = bases[0] if len(bases) == 1 else "the nearest row above that has none"
        notes.append(f"Δ is the difference from {to}.")
    if any(row.quoted for row in experiment.rows.values()):
        notes.append("Rows without seeds are quoted from the paper and not run here.")
    for metric in experiment.metrics[1:]:
        if any(tokenised(metric) in result.scores for result in results.values()):
            notes.append(
                f"{metric} is omitted where the text was already tokenised and there are no raw "
                "references (data.raw_references): it would not be comparable."
            )
    if plan.scale_name != "paper" and any(row.published for row in experiment.rows.values()):
        notes.append("The paper's numbers are those of its own models, corpora and test sets.")
    missing = unfinished(plan, results)
    if missing:
        named = ", ".join(run.name for run in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        notes.append(f"Missing: {len(missing)} of {len(plan.runs)} runs: {named}{more}.")
    names = {run.name for run in plan.runs}
    for signature in sorted({r.signature for name, r in results.items() if name in names}):
        notes.append(f"Signature: {signature}")
    return notes


def _direction(experiment: Experiment) -> str:
    if experiment.better == "neither":
        return "neither higher nor lower is better"
    return f"{experiment.better} is better, and the best of each column is marked"


def _bases(experiment: Experiment) -> Iterable[str]:
    return dict.fromkeys(row.against for row in experiment.rows.values() if row.against)


# ---- formats --------------------------------------------------------------------------------


def as_table(report: Report) -> Table:
    """The table for a terminal, one part for each column of the experiment."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for index, heading in enumerate(_headings(report)):
        narrow = heading.replace(", ", ",\n").replace("parameters", "size")  # no wrapped numbers
        table.add_column(narrow, justify="right" if index else "left", no_wrap=True)
    for name, rows in report.parts.items():
        if len(report.parts) > 1:
            table.add_row(Text(name, style="italic"))
        for row in rows:
            table.add_row(*map(Text, _cells(report, row, "* {}", "{}")))
        table.add_section()
    return table


def show(report: Report, console: Console) -> None:
    """Print the table with its title above and its notes below."""
    plain: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True}
    console.print(report.title, style="bold", **plain)
    console.print(as_table(report))
    for verdict in report.verdicts:
        lines = fill(_sentence(verdict), console.width, subsequent_indent="  ")
        console.print(lines, **plain)
    for note in report.notes:  # a signature is not broken
        lines = fill(note, console.width, break_long_words=False, break_on_hyphens=False)
        console.print(lines, **plain)


def as_text(report: Report) -> str:
    """The table and its notes as plain text."""
    out = StringIO()
    show(report, Console(file=out, width=WIDTH, color_system=None))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def as_markdown(report: Report, pictures: Sequence[str]) -> str:
    """The table, its notes and the figures as Markdown."""
    lines = [f"# {report.title}", ""]
    headings = _headings(report)
    for name, part in report.parts.items():
        lines += [_markdown_row([name, *headings[1:]])]
        lines += ["|---|" + "---:|" * (len(headings) - 1)]
        lines += [_markdown_row(_cells(report, row, "**{}**", "{}")) for row in part]
        lines.append("")
    if report.verdicts:
        lines += ["| claim | verdict | our numbers |", "|---|---|---|"]
        lines += [_markdown_row([v.says, v.word, v.why]) for v in report.verdicts]
        lines.append("")
    for note in report.notes:
        lines += [note, ""]
    for picture in pictures:
        lines += [f"![{report.title}]({picture})", ""]
    return "\n".join(lines)


def _sentence(verdict: Verdict) -> str:
    why = f": {verdict.why}" if verdict.why else ""
    return f"Claim: {verdict.says}. {verdict.word.capitalize()}{why}."


def _markdown_row(cells: list[str]) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _headings(report: Report) -> list[str]:
    first, *others = report.metrics
    published = ["paper", "Δ"] if report.has_published else []
    further = [
        heading
        for metric in others
        for heading in (f"{metric}, ours", *(["paper"] if report.has_published else []))
    ]
    return ["", f"{first}, ours", "Δ", *published, *further, "seeds", "parameters"]


def _cells(report: Report, row: TableRow, best: str, other: str) -> list[str]:
    """The cells of a row; the best are formatted with `best`."""

    def marked(text: str, is_best: bool) -> str:
        return best.format(text) if is_best else other.format(text)

    published = [marked(row.published, row.published_best), row.published_gain]
    return [
        row.name,
        marked(row.ours, row.best),
        row.our_gain,
        *(published if report.has_published else []),
        *(row.others if report.has_published else row.others[::2]),
        row.seeds,
        row.parameters,
    ]
