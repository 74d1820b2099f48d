"""Reading settings: TOML or JSON files, the configs they extend, and --set overrides.

A config inherits all settings of the one it extends except `run`, and overrides those it sets.
"""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from kutta.config.mistakes import apply_override, sentence, suggest
from kutta.errors import InputError
from kutta.parsing import DocumentError, parse_json, parse_toml, read_document

Values = dict[str, Any]

_PACKAGE = Path(__file__).parents[1]


class Settings(NamedTuple):
    """Plain values by section, and the file or option that each of them comes from."""

    values: Values
    origins: dict[str, str]  # "model.solver" -> a file


def read_settings(path: Path, overrides: Iterable[str] = ()) -> Settings:
    """The settings of a file and of all it extends, with overrides ("key=value") applied last."""
    values, origins = _extended(path, ())
    if path.suffix != ".json":
        values.setdefault("run", f"runs/{path.stem}")
        origins.setdefault("run", "the name of the file")
    for override in overrides:
        changed: Values = {}
        apply_override(changed, override)
        apply_override(values, override)
        key = override.partition("=")[0].strip()
        kept = {k: of for k, of in origins.items() if not f"{k}.".startswith(f"{key}.")}
        origins = kept | dict.fromkeys(_leaves(changed), "--set")
    return Settings(values, origins)


def _extended(path: Path, below: tuple[Path, ...]) -> Settings:
    """The settings of a file merged into those of the file it extends."""
    if path.resolve() in below:
        circle = " -> ".join(file.name for file in (*below, path))
        raise InputError(f"{path}: extends forms a cycle ({circle}); remove one of them.")
    values = read_values(path)
    # The config of a run is complete. It cannot make Kutta read another file.
    name = values.pop("extends", None) if path.suffix != ".json" else None
    own = Settings(values, dict.fromkeys(_leaves(values), path.name))
    if name is None:
        return own
    if not isinstance(name, str):
        raise InputError(f"{path}: extends = {name!r} is not valid: write one name, in quotes.")
    base = extended(name, path, below)
    return Settings(merge(base.values, own.values), base.origins | own.origins)


def extended(name: str, asked_by: Path, below: tuple[Path, ...] = ()) -> Settings:
    """The settings that a file inherits by `extends = name`: all but `run`.

    `below` are the files that extend `asked_by`.
    """
    base = _extended(find_preset(name, asked_by), (*below, asked_by.resolve()))
    base.values.pop("run", None)  # two configs never share a folder by accident
    base.origins.pop("run", None)
    return base


def merge(values: Values, change: Values) -> Values:
    """`values` overridden by `change`; tables are merged, all other values are replaced."""
    merged = dict(values)
    for key, new in change.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(new, dict)
        merged[key] = merge(cast(Values, old), cast(Values, new)) if both else new
    return merged


def _leaves(values: Values, prefix: str = "") -> Iterator[str]:
    """The full name of every setting that is not a table."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(cast(Values, value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def read_values(path: Path) -> Values:
    """The table of a TOML or JSON file."""
    kind, text = "JSON" if path.suffix == ".json" else "TOML", ""
    try:
        text = read_document(path)
        values: Any = parse_json(text) if kind == "JSON" else parse_toml(text)
    except FileNotFoundError:
        raise InputError(f"There is no config file {path}; check the path.") from None
    except DocumentError as error:
        problem = _other_format(path, text) or str(error)
        quotes = '; text goes in quotes, e.g. "rk2"' if "Invalid value" in problem else ""
        raise InputError(f"{path} {problem}{quotes}.") from None
    except OSError as error:
        raise InputError(f"Cannot read the config {path}: {error.strerror or error}.") from None
    if not isinstance(values, dict):
        raise InputError(f"{path} does not contain a table of settings; give a config.")
    return cast(Values, values)


def _other_format(path: Path, text: str) -> str:
    """What is wrong with a config in the format of other toolkits; empty if it is not one."""
    lines = (line for line in text.split("\n") if line.strip() and not line.startswith("#"))
    first = next(lines, "")
    if path.suffix != ".json" and first.startswith("{"):
        return "is JSON, but a config is TOML; `kutta info PRESET --resolved` prints an example"
    if path.suffix in (".yaml", ".yml") or re.match(r"---|[\w-]+:(\s|$)", first):
        return (
            'is YAML, but a config is TOML; write a section as [data] and a setting as dir = "text"'
        )
    if path.suffix not in ("", ".toml", ".json"):
        return "is not a config; give a .toml file, which names the folder of the text as data.dir"
    return ""


def shipped(folder: str) -> Path:
    """A folder shipped with Kutta: inside the installed package, or at the root of a checkout."""
    places = _PACKAGE / folder, _PACKAGE.parents[1] / folder
    for place in places:
        if place.is_dir():
            return place
    raise InputError(
        f"Kutta's folder {folder} is missing (looked in {places[0]}); reinstall Kutta."
    )


def presets() -> dict[str, Path]:
    """The configs shipped with Kutta, by name: those of configs, then those of experiments."""
    folders = shipped("configs"), shipped("experiments") / "presets"
    files = (sorted(folder.glob("*.toml"), key=lambda file: file.stem) for folder in folders)
    return {file.stem: file for inside in files for file in inside}


def find_config(name: str | Path, models: Mapping[str, Path] | None = None) -> Path:
    """The file or folder at this path, or the preset of this name, or one of these models."""
    path = Path(name)
    if os.path.exists(path):  # unlike Path.exists, no error where a name is too long for a file
        return path
    known = presets() | dict(models or {})
    if str(name) in known:
        return known[str(name)]
    if path.suffix or len(path.parts) > 1:
        ours = f", or use {path.stem} for the preset" if path.stem in known else ""
        beside = [str(file) for file in path.parent.glob("*.toml")] if not ours else []
        near = difflib.get_close_matches(str(path), beside, n=1)
        hint = f"did you mean {near[0]}?" if near else f"check the path{ours}."
        raise InputError(f"There is no config file {path}; {hint}")
    also = f", and the models are {', '.join(models)}" if models else ""
    near = suggest(str(name), [*known]) or f"; `kutta info --list` lists the presets{also}"
    raise InputError(sentence(f"There is no config file or preset {str(name)!r}{near}"))


def find_preset(name: str, asked_by: Path) -> Path:
    """The file that `extends` names: relative to the file `asked_by`, or a preset of Kutta."""
    file = name if name.endswith(".toml") else f"{name}.toml"
    for beside in (asked_by.parent / file, asked_by.parent / "presets" / file):
        if beside.is_file():
            return beside
    known = presets()
    if name not in known:
        near = suggest(name, [*known])
        raise InputError(
            sentence(f"{asked_by}: extends = {name!r} is not a file or a preset{near}")
        )
    return known[name]
