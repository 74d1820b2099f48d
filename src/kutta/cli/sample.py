"""The command that samples text from a language model."""

from typing import Annotated

import typer

from kutta.cli.app import Checkpoint, Device, Run, Seed, app
from kutta.config import Sampling


@app.command()
def sample(
    run: Run,
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="Start each text with this.")] = "",
    count: Annotated[int, typer.Option(metavar="N", help="Write this many texts.")] = 5,
    max_length: Annotated[
        int, typer.Option(metavar="N", help="Write at most this many tokens after the prompt.")
    ] = 100,
    temperature: Annotated[
        float, typer.Option(metavar="T", help="Sample at this temperature.")
    ] = 1.0,
    top_k: Annotated[
        int, typer.Option(metavar="K", help="Sample from the K likeliest tokens; 0 is all.")
    ] = 0,
    top_p: Annotated[
        float,
        typer.Option(
            metavar="P", help="Sample from the fewest tokens whose probabilities add up to P."
        ),
    ] = 1.0,
    seed: Seed = 1,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
) -> None:
    """Sample texts from a language model, one per line."""
    from kutta.commands.translate import chosen_folder
    from kutta.translate.writer import Writer

    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    writer = Writer.load(chosen_folder(run, checkpoint), device)
    for text in writer.write(prompt, count, sampling, max_length):
        typer.echo(text)
