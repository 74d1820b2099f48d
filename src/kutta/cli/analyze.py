"""The command that analyses a trained model."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kutta.cli.app import AsJson, Device, Run, app, print_json


@app.command()
def analyze(
    run: Run,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ANALYSIS",
            help="Run these analyses: truncation, blocks, gradients, embedding, inference.",
            show_default="all",
        ),
    ] = None,
    sentences: Annotated[int, typer.Option(metavar="N", help="Analyse this many sentences.")] = 64,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Take the sentences from this test set.",
            show_default="validation set",
        ),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Read the text files from this folder.",
            show_default="text in the run",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD",
            help="Run inference with this method. It can be repeated.",
            show_default="euler, rk2, rk4",
        ),
    ] = None,
    bleu: Annotated[
        bool, typer.Option("--bleu", help="Also score translations in inference.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the results to this folder.",
            show_default="analysis in the run",
        ),
    ] = None,
    device: Device = "auto",
    json: AsJson = False,
) -> None:
    """Analyse the blocks of a trained model on real sentences.

    truncation measures how far each block's step is from the solution of its ODE. blocks measures
    norms, directions and learned coefficients. gradients measures gradient norms by block and by
    step. embedding measures how much of the input token is left after each block. inference runs
    the same weights with other methods and step sizes. Each analysis writes JSON, PNG and SVG.
    """
    from kutta.analysis.analyze import Request, analyze

    request = Request(run, what or (), sentences, test, data_dir, out, device, method or (), bleu)
    console = Console(file=sys.stderr) if json else Console()
    results = analyze(request, console)
    if json:
        print_json(results)
