"""The command that serves models."""

from pathlib import Path
from typing import Annotated

import typer

from kutta.cli.app import Device, app
from kutta.cli.complete import runs as run_names
from kutta.errors import InputError


@app.command()
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="Give run directories, exported models or names of models in the box, one for "
            "each language pair.",
            show_default="all models in the box",
            autocompletion=run_names,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Listen on this address.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Listen on this port; 0 chooses a free one.")
    ] = 5000,
    api_keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Serve only requests with one of the keys in this file, one a line.",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Let pages of this origin, e.g. https://example.org, use the server. It can be "
            "repeated.",
            show_default="none",
        ),
    ] = None,
    char_limit: Annotated[
        int, typer.Option(metavar="N", help="Refuse requests with more characters.")
    ] = 20_000,
    batch_limit: Annotated[
        int, typer.Option(metavar="N", help="Refuse lists with more texts.")
    ] = 256,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Give up a translation after this time.")
    ] = 30.0,
    device: Device = "auto",
) -> None:
    """Serve models in the browser and with the API of LibreTranslate.

    Open the address that is printed for the page, or /docs for the API. Ctrl-C finishes what was
    begun, and stops. The access log goes to standard output, one JSON object per line, without the
    texts.
    """
    try:
        from kutta.server.limits import Limits
        from kutta.server.run import Request
        from kutta.server.run import serve as run
    except ModuleNotFoundError as error:
        raise InputError(
            f"The server needs {error.name}, which is not installed; install it with "
            "`pip install 'kutta[serve]'`."
        ) from error
    for name, value in (
        ("char-limit", char_limit),
        ("batch-limit", batch_limit),
        ("timeout", timeout),
    ):
        if value <= 0:
            raise InputError(f"--{name} {value} is not valid; it must be more than 0.")
    size = max(1_000_000, 12 * char_limit)  # bytes: in JSON a character may be two escapes
    limits = Limits(characters=char_limit, texts=batch_limit, seconds=timeout, body=size)
    request = Request(models or (), host, port, api_keys, cors or (), device, limits)
    run(request, lambda sentence: typer.echo(sentence, err=True))
