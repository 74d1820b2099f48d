"""What the shell suggests for an argument when a user presses Tab; quick, so without torch.

Where nothing is suggested, shells complete file names.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from kutta.box import models
from kutta.config.load import presets


def configs(incomplete: str) -> list[str]:
    """The presets, and the .toml files and folders at this place."""
    return _matching(incomplete, [*presets(), *_paths(incomplete, ".toml")])


def runs(incomplete: str) -> list[str]:
    """The models in the box, and the folders at this place."""
    return _matching(incomplete, [*models(), *_paths(incomplete)])


def checkpoints(incomplete: str) -> list[str]:
    """The names that choose a checkpoint."""
    return _matching(incomplete, ["best", "last"])


def metrics(incomplete: str) -> list[str]:
    """The metrics of `kutta score`."""
    from kutta.metrics import METRICS  # imports sacrebleu

    return _matching(incomplete, list(METRICS))


def _matching(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _paths(incomplete: str, suffix: str | None = None) -> Iterator[str]:
    """Folders, and files with the suffix, in the folder that is being typed."""
    folder = os.path.dirname(incomplete)
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield f"{Path(folder) / entry.name}/" if folder else f"{entry.name}/"
        elif suffix and entry.name.endswith(suffix):
            yield str(Path(folder) / entry.name)
