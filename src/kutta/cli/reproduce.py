"""The command that reproduces the paper's tables and figures."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kutta.cli.app import AsJson, DryRun, app, print_json
from kutta.errors import InputError


class _Scale(StrEnum):
    small = "small"
    paper = "paper"


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Give names of experiments, all, or .toml files; without a name they are listed.",
        ),
    ] = None,
    scale: Annotated[
        _Scale,
        typer.Option(
            metavar="small|paper",
            help="Run at small scale on a CPU, or at the paper's scale on GPUs.",
        ),
    ] = _Scale.small,
    data: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Read the corpora from this folder, one subfolder each."),
    ] = Path("data"),
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Write runs, tables and figures to this folder.")
    ] = Path("reproductions"),
    seeds: Annotated[
        str,
        typer.Option(
            metavar="N,N,...", help="Run these seeds.", show_default="those of the experiment"
        ),
    ] = "",
    jobs: Annotated[
        int, typer.Option(metavar="N", min=1, help="Train this many runs at once, one core each.")
    ] = 1,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Reproduce tables and figures of the paper.

    The models are trained and scored, and the results are shown next to the paper's. Ctrl-C saves
    and stops; run the same command to resume. --dry-run shows the runs and their cost.
    """
    if not names or names == ["list"]:
        from kutta.reproduce.catalogue import as_table, list_experiments

        experiments = list_experiments()
        print_json(experiments) if json else Console().print(as_table(experiments))
        return
    from kutta.reproduce.preview import previews
    from kutta.reproduce.reproduction import plans_of, reproduce

    console = Console(stderr=json)  # with --json, standard output is for JSON only
    plans = plans_of(names, scale.value, data, out, _numbers(seeds))
    if not dry_run:
        outcomes = reproduce(plans, jobs, console)
        if json:
            print_json(outcomes)
        return
    shown = previews(plans)
    if json:
        print_json([preview.to_dict() for preview in shown])
        return
    for preview in shown:
        console.print(preview.table())
        for sentence in preview.summary(jobs):
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)
        console.print()


def _numbers(text: str) -> list[int]:
    """Parse seeds such as 1,2,3."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if not all(word.isdecimal() for word in words):
        raise InputError(f"--seeds {text!r} is not a list of integers, e.g. --seeds 1,2,3.")
    return list(dict.fromkeys(map(int, words)))
