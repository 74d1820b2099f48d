"""Reading settings: TOML or JSON, what they extend, and what the command line changes.

    extends = "wmt14-en-de-base"     a preset by its name, or the path of a file beside this one
                                     (or in the folder presets beside it)

A config has all settings of the one it extends, except `run`, and replaces those it names.
"""

import json
import os
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from kutta.config.mistakes import apply_override, sentence, suggest
from kutta.errors import InputError

Values = dict[str, Any]

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Settings:
    """Plain values by section, and which file or option each of them comes from."""

    values: Values
    origins: dict[str, str] = field(default_factory=dict[str, str])  # "model.solver" -> a file


def read_settings(path: Path, overrides: Iterable[str] = ()) -> Settings:
    """The settings of a file with all that it extends, and overrides ("key=value") put in last."""
    settings = _extended(path, ())
    if path.suffix != ".json":
        settings.values.setdefault("run", f"runs/{path.stem}")
        settings.origins.setdefault("run", "the name of the file")
    for override in overrides:
        changed: Values = {}
        apply_override(changed, override)
        apply_override(settings.values, override)
        key = override.partition("=")[0].strip()
        kept = {k: of for k, of in settings.origins.items() if not f"{k}.".startswith(f"{key}.")}
        settings = replace(settings, origins=kept | {k: "--set" for k, _ in _leaves(changed)})
    return settings


def _extended(path: Path, below: tuple[Path, ...]) -> Settings:
    """The settings of a file merged into those of the file it extends."""
    if path.resolve() in below:
        circle = " -> ".join(file.name for file in (*below, path))
        raise InputError(f"{path}: extends goes in a circle ({circle}); remove one of them.")
    values = read_values(path)
    name = values.pop("extends", None)
    own = Settings(values, {key: path.name for key, _ in _leaves(values)})
    if name is None:
        return own
    if not isinstance(name, str):
        raise InputError(f"{path}: extends = {name!r} does not fit: write one name, in quotes.")
    base = extended(name, path, below)
    return Settings(merge(base.values, own.values), base.origins | own.origins)


def extended(name: str, asked_by: Path, below: tuple[Path, ...] = ()) -> Settings:
    """The settings that a file takes over by `extends = name`: all but the run.

    `below` are the files that extend the one that asks.
    """
    base = _extended(find_preset(name, asked_by), (*below, asked_by.resolve()))
    base.values.pop("run", None)  # two configs never share a folder by accident
    base.origins.pop("run", None)
    return base


def merge(values: Values, change: Values) -> Values:
    """`values` with those of `change` in their place; tables are merged, all else is replaced."""
    merged = dict(values)
    for key, new in change.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(new, dict)
        merged[key] = merge(cast(Values, old), cast(Values, new)) if both else new
    return merged


def _leaves(values: Values, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting that is not a table, by its full name."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(cast(Values, value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def read_values(path: Path) -> Values:
    """The table of a TOML or JSON file."""
    kind = "JSON" if path.suffix == ".json" else "TOML"
    try:
        text = path.read_text(encoding="utf-8")
        values: Any = json.loads(text) if kind == "JSON" else tomllib.loads(text)
    except FileNotFoundError:
        raise InputError(f"There is no config file {path}; check the path.") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        quotes = '; text goes in quotes, e.g. "rk2"' if "Invalid value" in str(error) else ""
        raise InputError(f"{path} is not readable as {kind}: {error}{quotes}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read the config {path}: {error}.") from None
    if not isinstance(values, dict):
        raise InputError(f"{path} does not hold a table of settings; give a config.")
    return cast(Values, values)


# ---- presets --------------------------------------------------------------------------------


def shipped(folder: str) -> Path:
    """A folder that comes with Kutta: in the package of a wheel, or at the root of a checkout."""
    places = _PACKAGE / folder, _PACKAGE.parents[1] / folder
    for place in places:
        if place.is_dir():
            return place
    raise InputError(
        f"The folder {folder} of Kutta is not there (looked at {places[0]}); install it again."
    )


def presets() -> dict[str, Path]:
    """The configs that come with Kutta, by name: those of configs, then those of experiments."""
    folders = shipped("configs"), shipped("experiments") / "presets"
    files = (sorted(folder.glob("*.toml"), key=lambda file: file.stem) for folder in folders)
    return {file.stem: file for inside in files for file in inside}


def find_config(name: str | Path) -> Path:
    """The file or folder of this path, or else the preset of this name."""
    path = Path(name)
    if os.path.exists(path):  # unlike Path.exists, no error where a name is too long for a file
        return path
    known = presets()
    if str(name) in known:
        return known[str(name)]
    if path.suffix or len(path.parts) > 1:
        ours = f", or type {path.stem} for the preset" if path.stem in known else ""
        raise InputError(f"There is no config file {path}; check the path{ours}.")
    near = suggest(str(name), [*known]) or "; `kutta info --list` shows the presets"
    raise InputError(sentence(f"There is no config file or preset {str(name)!r}{near}"))


def find_preset(name: str, asked_by: Path) -> Path:
    """The file that `extends` names: beside the file that asks, in the folder presets there, or
    a preset of Kutta."""
    file = name if name.endswith(".toml") else f"{name}.toml"
    for beside in (asked_by.parent / file, asked_by.parent / "presets" / file):
        if beside.is_file():
            return beside
    known = presets()
    if name not in known:
        near = suggest(name, [*known])
        raise InputError(sentence(f"{asked_by}: extends = {name!r} is no file or preset{near}"))
    return known[name]
