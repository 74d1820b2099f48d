"""The command that runs the paper's tables and figures."""

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
        typer.Argument(metavar="[NAME]...", help="tables, all, or a .toml; none lists them"),
    ] = None,
    scale: Annotated[_Scale, typer.Option(help="two cores, or the paper's GPUs")] = _Scale.small,
    data: Annotated[Path, typer.Option(help="where the corpora are")] = Path("data"),
    out: Annotated[Path, typer.Option(help="where to put runs and tables")] = Path("reproductions"),
    seeds: Annotated[
        str, typer.Option(metavar="1,2,3", help="which seeds", show_default="the table's")
    ] = "",
    jobs: Annotated[int, typer.Option(min=1, help="runs side by side, a core each")] = 1,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Make a table or figure of the paper: train its models, set our numbers beside its own.

    Ctrl-C saves and stops; the same command goes on. --dry-run shows the runs and their cost.
    """
    if not names or names == ["list"]:
        from kutta.reproduce.catalogue import as_table, list_experiments

        experiments = list_experiments()
        print_json(experiments) if json else Console().print(as_table(experiments))
        return
    from kutta.reproduce.preview import previews
    from kutta.reproduce.reproduction import plans_of, reproduce

    console = Console(stderr=json)  # with --json, standard output is for the program
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
    """Seeds as they are typed: 1,2,3."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if not all(word.isdecimal() for word in words):
        raise InputError(f"--seeds {text!r} is not a list of whole numbers, e.g. --seeds 1,2,3.")
    return list(dict.fromkeys(map(int, words)))
