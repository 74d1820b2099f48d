"""All settings of a config or a run with their origins, and the list of presets."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from kutta.config import Config, Section, known_keys
from kutta.config.load import presets
from kutta.errors import InputError

# Settings that are resolved for the device if the config leaves them open. The config of a run has
# their values, but not their origin.
_RESOLVED = ("train.pieces", "train.precision")


@dataclass(frozen=True)
class Setting:
    """A setting by its full name, its value and its origin."""

    key: str
    value: Any
    origin: str

    @property
    def plain(self) -> Any:
        """The value in JSON form."""
        value = self.value
        return value.model_dump(mode="json") if isinstance(value, Section) else value

    @property
    def section(self) -> str:
        return self.key.rpartition(".")[0]


def resolved_settings(what: Path, overrides: Sequence[str]) -> list[Setting]:
    """Every setting of a config, a preset or a run, with what was resolved when its run started."""
    from kutta.contained import check_contained
    from kutta.runs import Run
    from kutta.runs.device import as_started
    from kutta.runs.run import CONFIG

    if not what.is_dir():
        config, origins = Config.load_with_origins(what, overrides)
        started = as_started(config)
        return [
            Setting(key, started.value(key), _origin(key, origins))
            if started.value(key) == config.value(key)
            else Setting(key, started.value(key), "the device")
            for key in known_keys()
        ]
    check_contained(what)
    if not Run.is_at(what):
        raise InputError(f"{what} is not a run directory (it has no {CONFIG}).")
    config, origins = Config.load_with_origins(what / CONFIG, overrides)
    return [_of_run(key, config.value(key), _origin(key, origins)) for key in known_keys()]


def _origin(key: str, origins: dict[str, str]) -> str:
    """The origin of a setting; a table counts as one setting."""
    written = [of for name, of in origins.items() if f"{name}.".startswith(f"{key}.")]
    return " and ".join(dict.fromkeys(written)) or "default"


def _of_run(key: str, value: Any, origin: str) -> Setting:
    """A setting of a run, whose config.json has all settings, including defaults."""
    if origin != "--set":
        if value == default_of(key):
            origin = "default"
        elif key in _RESOLVED:
            origin = "the config or the device"
    return Setting(key, value, origin)


def default_of(key: str) -> Any:
    """The default of a setting by its full name."""
    section, _, name = key.rpartition(".")
    kind = Config.model_fields[section].annotation if section else Config
    fields = cast(type[Section], kind).model_fields
    return fields[name].get_default(call_default_factory=True)


def as_toml(settings: Sequence[Setting]) -> str:
    """A complete config with the origins as comments."""
    lines: list[str] = []
    for section, inside in groupby(settings, key=lambda setting: setting.section):
        lines += ["", f"[{section}]"] if section else []
        written = [(_line(setting), setting.origin) for setting in inside]
        width = min(max(len(line) for line, _ in written), 40)
        lines += [f"{line:<{width}}  # {origin}" for line, origin in written]
    return "\n".join(lines)


def _line(setting: Setting) -> str:
    name = setting.key.rpartition(".")[2]
    if setting.value is None:
        return f"# {name} is not set"
    return f"{name} = {_written(setting.plain)}"


def _written(value: Any) -> str:
    """A value in TOML, which differs from JSON only for tables."""
    if isinstance(value, dict) and value:
        table = cast(dict[str, Any], value)
        inside = (f"{json.dumps(name)} = {_written(one)}" for name, one in table.items())
        return f"{{ {', '.join(inside)} }}"
    return json.dumps(value, ensure_ascii=False)


def list_presets() -> list[dict[str, str]]:
    """The presets shipped with Kutta: name, title (the first comment of the file) and file."""
    return [
        {"name": name, "title": _title(path), "file": str(path)} for name, path in presets().items()
    ]


def _title(path: Path) -> str:
    return next(_comments(path), "").removesuffix(".")


def _comments(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            yield line.removeprefix("#").strip()
