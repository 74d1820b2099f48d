"""The command that lists the models in the box."""

from pathlib import Path
from typing import Any

import typer

from kutta.box import CARD
from kutta.box import models as shipped_models
from kutta.cli.app import app
from kutta.errors import InputError
from kutta.parsing import read_json

_HEAD = ("model", "languages", "parameters", "method", "score", "size", "licence")


@app.command()
def models() -> None:
    """List the models in the box, which work without training.

    Their names stand for run directories: echo "..." | kutta translate NAME. A folder of the same
    name in the current directory comes first.
    """
    rows = [_row(name, folder) for name, folder in shipped_models().items()]
    if not rows:
        typer.echo("There are no models in the box; train one with `kutta train`.")
        return
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    for row in (_HEAD, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def _row(name: str, folder: Path) -> tuple[str, ...]:
    """What the table says about a model; the score is that of the shipped weights."""
    try:
        card: dict[str, Any] = read_json(folder / CARD)
        score = card["scores"][0]
        return (
            name,
            f"{card['source']} to {card['target']}",
            f"{card['parameters']:,}",
            str(card["method"]),
            f"{score['metric']} {score['int8']:.1f}",
            f"{sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.1f} MB",
            str(card["licence"]),
        )
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(f"{folder / CARD} is damaged ({error!r}); reinstall Kutta.") from error
