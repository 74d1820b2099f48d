"""The results of runs: saved in results.json, and aggregated to the cells of a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from kutta.config import WEIGHTS
from kutta.errors import InputError
from kutta.files import write_json
from kutta.parsing import read_json
from kutta.reproduce.claims import Measured, Name, Verdict, judge
from kutta.reproduce.perform import Result
from kutta.reproduce.plan import Plan, PlannedRun

Results = dict[str, Result]


def read_results(folder: Path) -> Results:
    """The finished runs of a reproduction: those with a result and a model."""
    path = folder / "results.json"
    try:
        kept: dict[str, dict[str, Any]] = read_json(path)
        results = {name: Result(**entry) for name, entry in kept.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged ({error}); remove that file: finished runs are then scored again, "
            "not trained again."
        ) from None
    return {n: r for n, r in results.items() if (folder / "runs" / n / WEIGHTS).is_file()}


def write_results(folder: Path, results: Mapping[str, Result]) -> None:
    """Save the results, sorted by the name of the run."""
    write_json(folder / "results.json", {n: results[n].to_dict() for n in sorted(results)})


@dataclass(frozen=True)
class Cell:
    """A cell of the table: our score for each seed, and the paper's value."""

    row: str
    column: str
    scores: tuple[float, ...]
    planned: int
    published: float | None
    parameters: int | None

    @property
    def mean(self) -> float | None:
        return fmean(self.scores) if self.scores else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over seeds (n - 1)."""
        return stdev(self.scores) if len(self.scores) > 1 else None


Cells = dict[tuple[str, str], Cell]


def cells_of(plan: Plan, results: Mapping[str, Result], metric: int = 0) -> Cells:
    """The cells of the table, column by column, with the available results by this metric."""
    experiment, cells = plan.experiment, Cells()
    name = experiment.metrics[metric]
    for row, column in experiment.all_cells():
        runs = [run for run in plan.runs if (run.row, run.column) == (row, column)]
        found = [results[run.name] for run in runs if run.name in results]
        scores = [result.score_by(name) if metric else result.score for result in found]
        cells[row, column] = Cell(
            row,
            column,
            tuple(score for score in scores if score is not None),
            len(runs),
            experiment.rows[row].published_at(column, metric),
            found[0].parameters if found else None,
        )
    return cells


def run_cells(plan: Plan, results: Mapping[str, Result]) -> Cells:
    """The cells that have runs, without those that are only quoted."""
    quoted = {key for key, row in plan.experiment.rows.items() if row.quoted}
    return {n: cell for n, cell in cells_of(plan, results).items() if cell.row not in quoted}


def verdicts_of(plan: Plan, results: Mapping[str, Result]) -> list[Verdict]:
    """The verdict on each claim of the paper."""
    cells = cells_of(plan, results)

    def measured(name: Name) -> Measured | None:
        cell = cells[name]
        if cell.mean is None:
            return None
        return Measured(cell.mean, cell.deviation, len(cell.scores))

    lower = plan.experiment.better == "lower"
    return [judge(claim, cells, measured, lower) for claim in plan.experiment.claims]


def gain(cells: Cells, cell: Cell, against: str, ours: bool) -> float | None:
    """The difference of a cell to the row it is compared with, in our or the paper's numbers."""
    base = cells.get((against, cell.column))
    if base is None:
        return None
    one, other = (cell.mean, base.mean) if ours else (cell.published, base.published)
    return None if one is None or other is None else one - other


def unfinished(plan: Plan, results: Mapping[str, Result]) -> list[PlannedRun]:
    """The runs without a result, in the order of execution."""
    return [run for run in plan.runs if run.name not in results]
