"""The commands for public corpora."""

from pathlib import Path
from textwrap import fill, indent
from typing import Annotated

import typer
from rich.console import Console

from kutta.cli.app import App, AsJson, Overwrite, app, print_json
from kutta.cli.complete import corpora

data_app = App(
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data", help="List and download public corpora.")

Root = Annotated[
    Path,
    typer.Option(
        "--dir", metavar="DIR", help="Use this folder for all corpora, one subfolder each."
    ),
]


@data_app.command("list")
def list_corpora(root: Root = Path("data"), json: AsJson = False) -> None:
    """List the available corpora with their terms of use."""
    from kutta.corpora.assemble import is_made
    from kutta.corpora.recipes import RECIPES

    made = {name: is_made(recipe, root) for name, recipe in RECIPES.items()}
    if json:
        print_json(
            [
                {
                    "name": name,
                    "title": recipe.title,
                    "languages": recipe.languages,
                    "lines": recipe.lines,
                    "megabytes": recipe.megabytes,
                    "terms": recipe.terms,
                    "here": made[name],
                    "folder": str(root / name),
                    "sources": {file: source.url for file, source in recipe.sources.items()},
                }
                for name, recipe in RECIPES.items()
            ]
        )
        return
    width = max(Console().width - 15, 40)
    for name, recipe in RECIPES.items():
        here = f"in {root / name}" if made[name] else f"about {recipe.megabytes:,} MB to download"
        typer.echo(f"{name:<15}{'-'.join(recipe.languages):<10}{recipe.lines:>12,} lines  {here}")
        typer.echo(indent(fill(f"{recipe.title}. {recipe.terms}", width), " " * 15))


@data_app.command("get")
def get_corpus(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Give the name of a corpus; `kutta data list` lists them.",
            show_default=False,
            autocompletion=corpora,
        ),
    ],
    root: Root = Path("data"),
    by_hand: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Use files downloaded manually to this folder."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Download, verify, clean and split a corpus.

    Run the same command to resume after an interruption. The downloaded files stay in the
    subfolder downloads until you delete them. By downloading a corpus you accept its terms.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from kutta.corpora.assemble import make_corpus, summary
    from kutta.corpora.recipes import find_recipe

    recipe = find_recipe(name)
    typer.echo(f"{recipe.title}.\n{recipe.terms}")
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} {task.fields[unit]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    try:
        report = make_corpus(recipe, root, by_hand, overwrite, progress)
    except KeyboardInterrupt:
        typer.echo("kutta: interrupted; run the same command to resume", err=True)
        raise typer.Exit(130) from None
    if report is None:
        typer.echo(f"{root / name} already exists; add --overwrite to recreate it.")
        return
    typer.echo("\n".join(summary(report)))
    typer.echo(f"written to {root / name}; you may delete {root / 'downloads'} to save space")
