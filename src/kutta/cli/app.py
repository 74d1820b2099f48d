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
    Path,
    typer.Argument(
        metavar="CONFIG", help="A .toml file or the name of a preset.", show_default=False
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, e.g. model.solver=rk4. Can be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Overwrite = Annotated[bool, typer.Option(help="Remove existing results and start over.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check the settings and print what would be done.")
]
Device = Annotated[
    str, typer.Option(metavar="DEVICE", help="Device to use: auto, cpu, cuda, cuda:1, ...")
]
Seed = Annotated[int, typer.Option(metavar="N", help="Random seed.")]


def _option(kind: Any, setting: FieldInfo) -> Any:
    description = setting.description or ""
    sentence = f"{description[:1].upper()}{description[1:]}."
    return Annotated[
        kind, typer.Option(metavar="N", help=sentence, show_default="setting of the run")
    ]


# The search options of a command with **search: Unpack[SearchOptions].
search_options = spelled_out(
    {
        name: _option(kind, DecodeConfig.model_fields[name])
        for name, kind in SearchOptions.__annotations__.items()
    }
)


@app.callback(invoke_without_command=True)
def kutta(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Machine translation with Transformers whose blocks are steps of an ODE solver."""
    if version:
        typer.echo(f"kutta {__version__}")
        raise typer.Exit


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
