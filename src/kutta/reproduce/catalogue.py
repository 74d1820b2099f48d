"""The list of experiments shipped with Kutta."""

from typing import Any

from rich import box
from rich.table import Table

from kutta.reproduce.experiment import available, load


def list_experiments() -> list[dict[str, Any]]:
    """Name, title, metric and scales of every experiment."""
    loaded = {name: load(path) for name, path in available().items()}
    return [
        {"name": name, "title": one.title, "metric": one.metric, "scales": list(one.scales)}
        for name, one in loaded.items()
    ]


def as_table(experiments: list[dict[str, Any]]) -> Table:
    """The list for a terminal."""
    table = Table("name", "what it is", "metric", "scales", box=box.SIMPLE_HEAD)
    for one in experiments:
        table.add_row(one["name"], one["title"], one["metric"], ", ".join(one["scales"]))
    return table
