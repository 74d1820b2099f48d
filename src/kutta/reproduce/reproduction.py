"""`kutta reproduce`: plan, check, execute the missing runs, and report after each."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console

from kutta.errors import InputError
from kutta.files import write_text
from kutta.reproduce.estimate import estimate
from kutta.reproduce.execute import (
    Ending,
    locked_reproduction,
    one_by_one,
    print_line,
    side_by_side,
    write_text_of,
)
from kutta.reproduce.experiment import ScaleName, available, load
from kutta.reproduce.figure import draw, names_of
from kutta.reproduce.perform import Result
from kutta.reproduce.plan import Plan, PlannedRun, make_plan, missing_text, write_plan
from kutta.reproduce.results import (
    Results,
    cells_of,
    read_results,
    unfinished,
    verdicts_of,
    write_results,
)
from kutta.reproduce.table import as_markdown, as_text, report_of, show


def plans_of(
    names: Sequence[str], scale: ScaleName, data: Path, out: Path, seeds: Sequence[int]
) -> list[Plan]:
    """The plans of experiments by name; "all" are those of the paper that have this scale."""
    known = {name: load(path) for name, path in available().items()} if "all" in names else {}
    everything = [n for n, e in known.items() if e.reproduces and scale in e.scales]
    wanted = [one for name in names for one in (everything if name == "all" else [name])]
    plans = [make_plan(name, scale, data, out, seeds) for name in dict.fromkeys(wanted)]
    folders = [plan.folder for plan in plans]
    for folder in folders:
        if folders.count(folder) > 1:
            raise InputError(f"Two experiments would use the folder {folder}; rename one file.")
    return plans


def reproduce(plans: Sequence[Plan], jobs: int, console: Console) -> list[dict[str, Any]]:
    """Execute all missing runs; return the results of each experiment.

    Everything is checked before the first run starts. A failed run does not stop the others; its
    error is raised at the end.
    """
    missing = [sentence for plan in plans for sentence in missing_text(plan)]
    if missing:
        raise InputError(missing[0])
    failures: list[str] = []
    for plan in plans:
        with locked_reproduction(plan.folder) as lock:
            failures += _execute(plan, jobs, lock, console)
    if failures:
        more = f" ({len(failures) - 1} more runs failed)" if len(failures) > 1 else ""
        raise InputError(f"{failures[0]}{more} Run the same command to retry.")
    return [outcome_of(plan, read_results(plan.folder)) for plan in plans]


def _execute(plan: Plan, jobs: int, lock: int, console: Console) -> list[str]:
    """Execute the runs of one plan; return the errors of those that failed."""
    write_plan(plan)
    write_text_of(plan, console)
    results = read_results(plan.folder)
    todo = [run for run in unfinished(plan, results) if run.seed in plan.asked]
    print_line(
        console,
        f"{plan.name}, scale {plan.scale_name}: {len(todo)} of {len(plan.runs)} runs to do in "
        f"{plan.folder}",
    )
    ended = (
        one_by_one(plan, todo, console)
        if jobs == 1
        else side_by_side(plan, todo, jobs, lock, console)
    )
    failures = list(_record(plan, todo, ended, results, jobs, console))
    if not any(run.name in results for run in todo):  # else it was written after the last of them
        _report(plan, results)
    console.print()
    show(report_of(plan, results), console)
    figures = [f"{name}.{kind}" for name in names_of(plan) for kind in ("png", "svg")]
    written = ", ".join(["table.md", "table.txt", *figures, "results.json"])
    print_line(console, f"\n{plan.folder}: {written}")
    return failures


def _record(
    plan: Plan,
    todo: Sequence[PlannedRun],
    ended: Iterator[tuple[PlannedRun, Ending]],
    results: Results,
    jobs: int,
    console: Console,
) -> Iterator[str]:
    """Save the result of each run as it ends, and update table and figure; yield errors."""
    done, stopped = set[str](), False
    for run, ending in ended:
        done.add(run.name)
        if isinstance(ending, InputError):
            print_line(console, f"{run.name} failed: {ending}")
            yield f"The run {run.name} failed: {ending}"
        elif ending is None:
            stopped = True
        else:
            results[run.name] = ending
            write_results(plan.folder, results)
            _report(plan, results)
            left = _time_left([r for r in todo if r.name not in done], results, plan, jobs)
            score = f"{plan.experiment.metric} {ending.score:.2f}"
            print_line(console, f"{run.name}: {score} ({len(done)} of {len(todo)}{left})")
    if stopped:
        made = len(plan.runs) - len(unfinished(plan, results))
        print_line(
            console,
            f"stopped: {made} of {len(plan.runs)} runs done; run the same command to resume",
        )
        raise KeyboardInterrupt


def _report(plan: Plan, results: Mapping[str, Result]) -> None:
    """Write table and figure of the available results, so that they are always up to date."""
    report = report_of(plan, results)
    write_text(plan.folder / "table.txt", as_text(report))
    draw(plan, results)
    write_text(
        plan.folder / "table.md", as_markdown(report, [f"{name}.png" for name in names_of(plan)])
    )


def _time_left(
    left: Sequence[PlannedRun], results: Mapping[str, Result], plan: Plan, jobs: int
) -> str:
    """The time for the remaining runs at the speed of those that ran without interruption."""
    whole = {n: r for n, r in results.items() if r.from_step == 0 and r.seconds > 0}
    made = [(run, whole[run.name]) for run in plan.runs if run.name in whole]
    spent = sum(result.seconds for _, result in made)
    if not left or not spent:
        return ""
    rate = sum(estimate(run.config).flop for run, _ in made) / spent
    seconds = sum(estimate(run.config).flop for run in left) / rate / jobs
    return f"; about {timedelta(seconds=round(seconds))} left"


def outcome_of(plan: Plan, results: Mapping[str, Result]) -> dict[str, Any]:
    """The results of an experiment, for JSON."""
    return {
        "experiment": plan.name,
        "scale": plan.scale_name,
        "folder": str(plan.folder),
        "metric": plan.experiment.metric,
        "missing": [run.name for run in unfinished(plan, results)],
        "cells": [
            {
                "row": cell.row,
                "column": cell.column,
                "scores": list(cell.scores),
                "mean": cell.mean,
                "deviation": cell.deviation,
                "published": cell.published,
                "parameters": cell.parameters,
            }
            for cell in cells_of(plan, results).values()
        ],
        "claims": [verdict.to_dict() for verdict in verdicts_of(plan, results)],
    }
