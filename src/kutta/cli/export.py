"""The command that writes a model for other programs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kutta.cli.app import Checkpoint, Run, app
from kutta.errors import InputError


class Target(StrEnum):
    """What the files are for."""

    ctranslate2 = "ctranslate2"


@app.command()
def export(
    run: Run,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Write the files to this new folder.")
    ],
    to: Annotated[
        Target, typer.Option("--to", metavar="FORMAT", help="Write this format: ctranslate2.")
    ],
    quantization: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            help="Store the weights so: float32, float16, bfloat16, int8 or int8_float32.",
        ),
    ] = "float32",
    checkpoint: Checkpoint = None,
) -> None:
    """Write a trained model in the format of another program.

    CTranslate2 can compute Euler models, and RK2 with gamma = "ones".
    """
    from kutta.export.ctranslate2 import QUANTIZATIONS, export_ctranslate2
    from kutta.runs import Run as RunDirectory

    if quantization not in QUANTIZATIONS:
        raise InputError(
            f"--quantization {quantization} is not known; choose one of {', '.join(QUANTIZATIONS)}."
        )
    export_ctranslate2(RunDirectory.load(run, checkpoint), folder, quantization)
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    typer.echo(f"{folder}: a model for CTranslate2, {quantization}, {size:.1f} MB")
