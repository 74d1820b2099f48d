"""The commands that describe configs, presets, runs and methods."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from kutta.box import models
from kutta.cli.app import AsJson, Settings, app, print_json
from kutta.cli.complete import configs_and_runs
from kutta.config.load import find_config
from kutta.errors import InputError


@app.command()
def info(
    what: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG|RUN",
            help="Give a config file, a preset, a run directory, or a model in the box.",
            autocompletion=configs_and_runs,
        ),
    ] = None,
    set: Settings = None,
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Print all settings with their origins, as TOML.")
    ] = False,
    presets: Annotated[bool, typer.Option("--list", help="List the presets.")] = False,
    json: AsJson = False,
) -> None:
    """Show the method, the parameters and the cost per token.

    With --resolved the output is a complete config, which can be saved and trained.
    """
    from kutta.cli.resolved import as_toml, list_presets, resolved_settings

    if presets:
        if what or set or resolved:
            raise InputError("--list lists all presets; remove the other arguments.")
        known = list_presets()
        lines = [f"{preset['name']:<24}{preset['title']}" for preset in known]
        print_json(known) if json else typer.echo("\n".join(lines))
        return
    if what is None:
        raise InputError(
            "Give a config, a preset or a run directory; `kutta info --list` lists the presets."
        )
    found = find_config(what, models())
    if resolved:
        settings = resolved_settings(found, set or [])
        if json:
            print_json({one.key: {"value": one.plain, "from": one.origin} for one in settings})
        else:
            typer.echo(as_toml(settings))
        return
    from kutta.commands.describe import describe

    facts = describe(found, set or [])
    if json:
        print_json(facts)
    else:
        for name, value in facts.items():
            parts = cast(dict[str, Any], value) if isinstance(value, dict) else {"": value}
            for part, fact in parts.items():
                title = f"{name} {part}".strip().replace("_", " ")
                typer.echo(f"{title:<32}{_shown(fact)}")


@app.command()
def methods() -> None:
    """List the values of model.solver and model.gamma."""
    from kutta.ode.catalogue import gamma_table, method_table

    typer.echo(f"{method_table()}\n\n{gamma_table()}")


def _shown(fact: Any) -> str:
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    return f"{fact:,}" if isinstance(fact, int) else str(fact)
