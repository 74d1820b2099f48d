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
    return _names_and_paths(incomplete, [*presets()], ".toml")


def runs(incomplete: str) -> list[str]:
    """The models in the box, and the folders at this place."""
    return _names_and_paths(incomplete, [*models()])


def configs_and_runs(incomplete: str) -> list[str]:
    """The presets and the models in the box, and the .toml files and folders at this place."""
    return _names_and_paths(incomplete, [*presets(), *models()], ".toml")


def checkpoints(incomplete: str) -> list[str]:
    """The names that choose a checkpoint."""
    return _matching(incomplete, ["best", "last"])


def metrics(incomplete: str) -> list[str]:
    """The metrics of `kutta score`."""
    from kutta.metrics import METRICS  # imports sacrebleu

    return _matching(incomplete, list(METRICS))


def corpora(incomplete: str) -> list[str]:
    """The corpora of `kutta data get`."""
    from kutta.corpora.recipes import RECIPES

    return _matching(incomplete, list(RECIPES))


def _names_and_paths(incomplete: str, names: list[str], suffix: str | None = None) -> list[str]:
    """Names with the paths at this place; nothing if only paths are left.

    Shells complete paths themselves, and better: bash and zsh put a space after each suggestion of
    a program, also after a folder that the user wants to look into.
    """
    known = _matching(incomplete, names)
    return known and known + _matching(incomplete, [*_paths(incomplete, suffix)])


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
