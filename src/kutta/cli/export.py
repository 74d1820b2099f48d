"""The command that writes a model for other programs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kutta.cli.app import Checkpoint, Run, app
from kutta.errors import InputError


class Target(StrEnum):
    """What the files are for."""

    onnx = "onnx"
    ctranslate2 = "ctranslate2"


class Precision(StrEnum):
    """How the weights of an ONNX export are stored and multiplied."""

    fp32 = "fp32"
    int8 = "int8"


@app.command()
def export(
    run: Run,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="Write the files to this new folder.",
            show_default="export/PRECISION in the run",
        ),
    ] = None,
    to: Annotated[
        Target,
        typer.Option(
            "--to", metavar="FORMAT", help="Write this format: onnx, which Kutta runs, ctranslate2."
        ),
    ] = Target.onnx,
    precision: Annotated[
        Precision | None,
        typer.Option(
            metavar="fp32|int8",
            help="Compute with weights of this precision, with --to onnx.",
            show_default="fp32",
        ),
    ] = None,
    score: Annotated[
        bool,
        typer.Option(help="Score int8 weights against fp32 on the test or validation text."),
    ] = True,
    shortlist: Annotated[
        bool,
        typer.Option(
            "--shortlist",
            help="Score only likely target tokens, learned from the training corpus of the run, "
            "with --to onnx.",
        ),
    ] = False,
    quantization: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="Store the weights so, with --to ctranslate2: float32, float16, bfloat16, int8 or "
            "int8_float32.",
            show_default="float32",
        ),
    ] = None,
    checkpoint: Checkpoint = None,
) -> None:
    """Write a trained model for devices without PyTorch.

    `kutta translate DIR` and `kutta sample DIR` then run it. Every model can be exported so.
    CTranslate2 can compute Euler models, and RK2 with gamma = "ones".
    """
    from kutta.runs import Run as RunDirectory

    found = RunDirectory.load(run, checkpoint)
    if to is Target.ctranslate2:
        from kutta.export.ctranslate2 import QUANTIZATIONS, export_ctranslate2

        _reject("ctranslate2", precision=precision, shortlist=shortlist or None)
        quantization = quantization or "float32"
        if quantization not in QUANTIZATIONS:
            raise InputError(
                f"--quantization {quantization} is not known; choose one of "
                f"{', '.join(QUANTIZATIONS)}."
            )
        folder = folder or found.outputs("export") / f"ctranslate2-{quantization}"
        export_ctranslate2(found, folder, quantization)
        typer.echo(f"{folder}: a model for CTranslate2, {quantization}, {_megabytes(folder)}")
        return
    from kutta.commands.export import export_model

    _reject("onnx", quantization=quantization)
    chosen = (precision or Precision.fp32).value
    name = f"{chosen}-shortlist" if shortlist else chosen
    folder = folder or found.outputs("export") / name
    for line in export_model(found, folder, chosen, score, shortlist):
        typer.echo(line)
    typer.echo(f"{folder}: a model for devices without PyTorch, {chosen}, {_megabytes(folder)}")


def _megabytes(folder: Path) -> str:
    return f"{sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.1f} MB"


def _reject(to: str, **options: object) -> None:
    """Reject options of the other format."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"--{name} has no effect with --to {to}; remove it.")
