"""Text from a language model."""

from typing import Annotated

import typer

from kutta.cli.app import Device, Run, app
from kutta.config import Sampling


@app.command()
def sample(
    run: Run,
    prompt: Annotated[str, typer.Option(help="how each text begins")] = "",
    count: Annotated[int, typer.Option(help="how many texts to draw")] = 5,
    max_length: Annotated[int, typer.Option(help="tokens after the prompt, at most")] = 100,
    temperature: Annotated[float, typer.Option(help="1 is the model's own")] = 1.0,
    top_k: Annotated[int, typer.Option(help="likeliest tokens; 0 for all")] = 0,
    top_p: Annotated[float, typer.Option(help="share of the mass kept")] = 1.0,
    seed: Annotated[int, typer.Option(help="everything random follows from it")] = 1,
    device: Device = "auto",
) -> None:
    """Draw texts from a language model, one a line."""
    from kutta.translate.writer import Writer

    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    for text in Writer.load(run, device).write(prompt, count, sampling, max_length):
        typer.echo(text)
