"""Settings typed by a person: reading them, and one sentence where they are wrong."""

import difflib
import json
import tomllib
from collections.abc import Sequence
from typing import Any, cast

from pydantic import ValidationError

from kutta.errors import InputError


def parse_value(text: str) -> Any:
    """A value on the command line is read as TOML; anything else is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def apply_override(values: dict[str, Any], override: str) -> None:
    """Put "section.key=value" into nested values."""
    key, equals, text = override.partition("=")
    *sections, name = key.strip().split(".")
    if not equals or not name:
        raise InputError(f"--set {override!r} is not of the form key=value, e.g. model.solver=rk4.")
    for section in sections:
        inner: Any = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise InputError(f"--set {override!r}: {section} is not a section of the config.")
        values = cast(dict[str, Any], inner)
    values[name] = parse_value(text.strip())


def first_mistake(error: ValidationError, known: Sequence[str]) -> str:
    """One sentence for the first mistake found, with the key and a way out."""
    mistake = error.errors()[0]
    key = ".".join(str(part) for part in mistake["loc"])
    if mistake["type"] == "extra_forbidden":
        return _sentence(f"there is no setting {key}{suggest(key, known)}")
    if mistake["type"] == "missing":
        return f"the setting {key} is missing; add it."
    message = mistake["msg"].removeprefix("Value error, ")
    given = mistake["input"]
    if mistake["type"] == "value_error":
        return _sentence(f"{key}: {message}" if key else message)
    return f"{key} = {json.dumps(given, default=str)} does not fit: {message.lower()}."


def _sentence(text: str) -> str:
    return text if text.endswith("?") else f"{text}."


def suggest(name: str, known: Sequence[str]) -> str:
    """', did you mean ...?' where something known is near, else what there is."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not near:
        tails = {key.rsplit(".", 1)[-1]: key for key in known}
        match = difflib.get_close_matches(name.rsplit(".", 1)[-1], tails, n=1, cutoff=0.75)
        near = [tails[m] for m in match]
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are {', '.join(known)}" if len(known) < 30 else ""
