"""The application object, and the options that several commands share."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from kutta import __version__
from kutta.config import DecodeConfig, SearchOptions
from kutta.config.signature import spelled_out

app = typer.Typer(
    name="kutta",
    help="Machine translation with Transformers whose blocks are steps of an ODE solver.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigFile = Annotated[
    Path, typer.Argument(help="a .toml file, or the name of a preset", show_default=False)
]
Run = Annotated[Path, typer.Argument(help="the folder of a run", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a setting, e.g. model.solver=rk4"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON for a program to read")]
Overwrite = Annotated[bool, typer.Option(help="throw away what is there and begin anew")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="check and show, but do nothing")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]


def _option(kind: Any, setting: FieldInfo) -> Any:
    return Annotated[kind, typer.Option(help=setting.description, show_default="the run's")]


# A command with **search: Unpack[SearchOptions] takes the options of the search from here.
search_options = spelled_out(
    {
        name: _option(kind, DecodeConfig.model_fields[name])
        for name, kind in SearchOptions.__annotations__.items()
    }
)


@app.callback(invoke_without_command=True)
def kutta(
    version: Annotated[bool, typer.Option("--version", help="show the version")] = False,
) -> None:
    """Machine translation with Transformers whose blocks are steps of an ODE solver."""
    if version:
        typer.echo(f"kutta {__version__}")
        raise typer.Exit


def print_json(value: Any) -> None:
    """Print what a program will read."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
