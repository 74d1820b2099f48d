"""Looking into a trained model."""

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
            help="truncation, blocks, gradients, embedding, inference", show_default="all of them"
        ),
    ] = None,
    sentences: Annotated[int, typer.Option(help="how many to look at")] = 64,
    test: Annotated[
        str | None,
        typer.Option(help="a corpus of text to take them from", show_default="the run's store"),
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="folder of the text files", show_default="the config's")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="for inference, may be repeated", show_default="euler, rk2, rk4"),
    ] = None,
    bleu: Annotated[bool, typer.Option("--bleu", help="for inference: translate too")] = False,
    out: Annotated[
        Path | None, typer.Option(help="folder to write to", show_default="analysis in the run")
    ] = None,
    device: Device = "auto",
    json: AsJson = False,
) -> None:
    """Measure what the blocks of a trained model do, on real sentences.

    truncation: how far each block's step is from the solution of its own ODE. blocks: lengths,
    directions, learned coefficients. gradients: norms by block and by step. embedding: how much
    of the input token is left after each block. inference: the same weights under other methods
    and step sizes. Each writes JSON, PNG and SVG.
    """
    from kutta.analysis.analyze import Request, analyze

    request = Request(run, what or (), sentences, test, data_dir, out, device, method or (), bleu)
    console = Console(file=sys.stderr) if json else Console()
    results = analyze(request, console)
    if json:
        print_json(results)
