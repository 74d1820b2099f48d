"""The application object, and the options that several commands share."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from kutta import __version__
from kutta.cli.complete import checkpoints, configs, runs
from kutta.cli.failure import CLOSED_PIPE
from kutta.cli.options import meant_instead
from kutta.cli.shell import InstallCompletion, ShowCompletion
from kutta.config import DecodeConfig, SearchOptions
from kutta.config.signature import spelled_out
from kutta.errors import InputError


class Command(TyperCommand):
    """A command whose help names arguments as other programs do, and that says why it stopped.

    Typer writes `{RUN}` and `RUN <path>` for an argument with the metavar RUN.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = [*args]  # typer empties the list
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException:
            known = {option for one in self.get_params(ctx) for option in one.opts}
            if sentence := meant_instead(words, known):
                raise InputError(sentence) from None
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        words = super().collect_usage_pieces(ctx)
        return [word.replace("{", "").replace("}", "") for word in words]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            name, text = record
            if parameter.param_type_name == "argument":
                name = parameter.metavar or name
                text = text.removesuffix("  [required]")  # the usage line shows it
            shown = text.replace("[default: (", "[default: ").replace(")]", "]")
            shown = shown.replace("; x>=1]", "]")
            rows[f"{parameter.param_type_name.capitalize()}s"].append((name, shown))
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            print(f"kutta: {str(stop) or 'interrupted'}", file=sys.stderr)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # typer would exit with 1
            raise typer.Exit(CLOSED_PIPE) from None


class App(typer.Typer):
    """An application whose commands are of the class above."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        return super().command(name, cls=Command, **options)


app = App(
    name="kutta",
    help="Translate with Transformers whose blocks are steps of an ODE solver.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,  # shell.py has these options
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigFile = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        help="Give a .toml file or the name of a preset.",
        show_default=False,
        autocompletion=configs,
    ),
]
Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="Give a run directory, one of its checkpoints, or the name of a model in the box.",
        show_default=False,
        autocompletion=runs,
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="best|last|STEP",
        help="Use a checkpoint of the run: the best, the last, or that of a step.",
        show_default="final model",
        autocompletion=checkpoints,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, e.g. model.solver=rk4. It can be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="Start over; new results replace existing ones when complete."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check the settings and print what would be done.")
]
Device = Annotated[
    str, typer.Option(metavar="DEVICE", help="Compute on this device: auto, cpu, cuda, cuda:1, ...")
]
Seed = Annotated[int, typer.Option(metavar="N", help="Start the random numbers from this seed.")]

# What the search options do, as sentences; others have the description of their setting.
_SEARCH = {
    "beam": ("N", "Keep this many hypotheses in the beam search; 1 is greedy."),
    "length_penalty": ("X", "Divide log-probabilities by length^X; larger X, longer translations."),
    "min_length": ("N", "Translate into at least this many tokens."),
    "max_length": ("N", "Translate into at most this many tokens; 0 is 2 x source length + 20."),
    "no_repeat_ngram": ("N", "Never repeat an n-gram of this length; 0 allows all."),
}


def _option(kind: Any, name: str, setting: FieldInfo) -> Any:
    description = setting.description or ""
    usual = "N", f"{description[:1].upper()}{description[1:]}."
    metavar, sentence = _SEARCH.get(name, usual)
    return Annotated[
        kind, typer.Option(metavar=metavar, help=sentence, show_default="setting of the run")
    ]


# The search options of a command with **search: Unpack[SearchOptions].
search_options = spelled_out(
    {
        name: _option(kind, name, DecodeConfig.model_fields[name])
        for name, kind in SearchOptions.__annotations__.items()
    }
)


@app.callback(invoke_without_command=True)
def kutta(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    install_completion: InstallCompletion = False,
    show_completion: ShowCompletion = False,
    debug: Annotated[  # taken from the arguments before, because it may stand anywhere
        bool, typer.Option("--debug", help="Show a traceback if the command fails.")
    ] = False,
) -> None:
    """Translate with Transformers whose blocks are steps of an ODE solver."""
    if version:
        typer.echo(f"kutta {__version__}")
        raise typer.Exit


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
