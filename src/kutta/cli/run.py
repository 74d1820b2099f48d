"""The commands that make a run: demo, prepare, train."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kutta.cli.app import (
    AsJson,
    ConfigFile,
    DryRun,
    Overwrite,
    Seed,
    Settings,
    app,
    print_json,
)
from kutta.cli.complete import configs
from kutta.config import Config


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Write the corpus and the run to this folder.")
    ] = Path("kutta-demo"),
    solver: Annotated[
        str, typer.Option(metavar="METHOD", help="Use this method in the encoder's blocks.")
    ] = "rk2",
    seed: Seed = 1,
    overwrite: Overwrite = False,
) -> None:
    """Train and evaluate a small model on a built-in corpus.

    The demo translates from English to German and takes at most five minutes on two cores. Run
    the same command to resume after an interruption.
    """
    from kutta.demo.demo import run_demo

    run_demo(folder, solver, seed, overwrite, Console())


@app.command()
def prepare(
    config: ConfigFile, set: Settings = None, overwrite: Overwrite = False, json: AsJson = False
) -> None:
    """Learn the vocabulary and encode the text for training.

    `kutta train` does this automatically if needed. --overwrite prepares the text again and
    changes nothing else in the run.
    """
    from kutta.runs import locked, open_run, prepare_run

    settings = Config.load(config, set or ())
    with locked(Path(settings.run)):
        run = open_run(settings)
        report = prepare_run(run, overwrite)
    if json:
        print_json(run.read_report())
    elif report is None:
        typer.echo(f"{run.stores} already exists; add --overwrite to recreate it.")
    else:
        typer.echo(f"{report}\nwritten to {run.stores}")


@app.command()
def train(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG|RUN",
            help="Give a .toml file, the name of a preset, or a run directory to resume.",
            show_default=False,
            autocompletion=configs,
        ),
    ],
    set: Settings = None,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
) -> None:
    """Train a model, or resume its training.

    Prepares the data if needed, validates, saves checkpoints, and finally writes the model that
    does best on the validation set (or what train.final_model says) to model.safetensors. Ctrl-C
    saves and stops; run the same command to resume. A run that has finished is left as it is;
    raise train.max_steps to train it further.
    """
    settings = Config.load(config, set or ())
    if dry_run:
        from kutta.training.run import dry_run_summary

        typer.echo(dry_run_summary(settings))
        return
    from kutta.training.parallel.group import is_main_process
    from kutta.training.run import train as train_run

    outcome = train_run(settings, overwrite)
    if outcome.ended == "interrupted":
        raise typer.Exit(130)
    if not is_main_process():
        return
    if settings.language_model:
        typer.echo(f"try it:  kutta sample {outcome.run}")
    else:
        typer.echo(f"try it:  echo '...' | kutta translate {outcome.run}")
