"""Overrides from the command line, and error messages for invalid settings."""

import difflib
import json
import tomllib
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, cast

from pydantic import ValidationError

from kutta.errors import InputError

# What to do about a value, by pydantic's error type; {placeholders} are filled from its context.
_WAYS_OUT = {
    "bool_type": "write true or false",
    "int_type": "write an integer, without a point or an exponent",
    "float_type": "write a number",
    "finite_number": "write a finite number",
    "string_type": "write text, in quotes",
    "string_too_short": "it must not be empty",
    "too_short": "it needs at least {min_length} of them",
    "list_type": 'write a list, with strings in quotes: ["a", "b"]',
    "model_type": "it is a section; write its settings below [{key}]",
    "literal_error": "choose {expected}",
    "greater_than": "it must be more than {gt:g}",
    "greater_than_equal": "it must be at least {ge:g}",
    "less_than": "it must be less than {lt:g}",
    "less_than_equal": "it must be at most {le:g}",
    "is_instance_of": "it must be a {class}, such as {class}()",
}

# Names used by other toolkits, and ours.
_OTHER_NAMES = {
    "learning_rate": "train.lr",
    "epochs": "train.max_steps",
    "layers": "model.encoder_layers",
    "depth": "model.encoder_layers",
    "method": "model.solver",
}


def parse_value(text: str) -> Any:
    """Parse a value of the command line as TOML; anything else is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set "section.key=value" in nested values."""
    key, equals, text = override.partition("=")
    *sections, name = key.strip().split(".")
    if not equals or not name:
        raise InputError(f"--set {override!r} is not of the form key=value, e.g. model.solver=rk4.")
    for section in sections:
        if values.get(section) is None:  # JSON writes a missing section as null
            values[section] = {}
        inner: Any = values[section]
        if not isinstance(inner, dict):
            raise InputError(f"--set {override!r}: {section} is not a section of the config.")
        values = cast(dict[str, Any], inner)
    values[name] = parse_value(text.strip())


@contextmanager
def in_one_sentence(known: Sequence[str] = (), where: str = "") -> Generator[None]:
    """Raise an InputError instead of a ValidationError; `where` is put before its message."""
    try:
        yield
    except ValidationError as error:
        message = first_mistake(error, known)
        raise InputError(f"{where}: {message}" if where else message) from None


def first_mistake(error: ValidationError, known: Sequence[str]) -> str:
    """One sentence for the first mistake: the key, what is wrong, and what to do."""
    mistakes = error.errors()
    # A misspelled name comes first: other errors may be a consequence of it.
    mistake = min(mistakes, key=lambda found: found["type"] != "extra_forbidden")
    key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in mistake["loc"])[1:]
    if mistake["type"] == "extra_forbidden":
        return sentence(f"there is no setting {key}{_known_setting(key, known)}")
    if mistake["type"] == "missing":
        section = any(name.startswith(f"{key}.") for name in known)
        return f"the {f'section [{key}]' if section else f'setting {key}'} is missing; add it."
    message = mistake["msg"].removeprefix("Value error, ")
    if mistake["type"] == "value_error":
        return sentence(f"{key}: {message}" if key else message)
    known_way = _WAYS_OUT.get(mistake["type"], "").format(key=key, **mistake.get("ctx", {}))
    if mistake["type"] == "list_type":
        known_way = _list_wanted(key, mistake["input"], known_way)
    return f"{key} = {_shown(mistake['input'])} is not valid: {known_way or message.lower()}."


def _list_wanted(key: str, value: Any, way_out: str) -> str:
    """What to write where a list is expected, inside a list or on the command line."""
    if key.endswith("]"):
        return f"{key.rpartition('[')[0]} is a list of rows, e.g. [[1]]"
    if isinstance(value, str):  # ["1/2"] has become [1/2], which is no TOML
        way_out += "; on the command line, put single quotes around the whole setting"
    return way_out


def sentence(text: str) -> str:
    """The text with a full stop, unless it ends in a question mark."""
    return text if text.endswith("?") else f"{text}."


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _known_setting(key: str, known: Sequence[str]) -> str:
    """The setting that an unknown name may stand for, or those of its section."""
    section, _, name = key.rpartition(".")
    everywhere = {full.rpartition(".")[2]: full for full in known}
    here = {full.rpartition(".")[2]: full for full in known if full.rpartition(".")[0] == section}
    if _OTHER_NAMES.get(name) in known:
        return f"; did you mean {_OTHER_NAMES[name]}?"
    # Compare names without their section: with it, all settings of a section look alike.
    near = _near(name, here, 0.6) or _near(name, everywhere, 0.75)
    if near:
        return f"; did you mean {(everywhere | here)[near[0]]}?"
    return f"; {f'[{section}] has' if section else 'there are'} {', '.join(here)}" if here else ""


def check_names(options: Iterable[str], known: Iterable[str]) -> None:
    """Reject an option that a function does not have."""
    names = [*known]
    for name in options:
        if name not in names:
            raise InputError(sentence(f"There is no option {name}{suggest(name, names)}"))


def suggest(name: str, known: Sequence[str]) -> str:
    """'; did you mean ...?' if there is a close match, else the list of what is known."""
    near = sorted(_near(name, known, 0.6))
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; there are {', '.join(known)}" if len(known) < 30 else ""


def _near(name: str, known: Iterable[str], likeness: float) -> list[str]:
    """The closest known words, ignoring case; only the word itself if it is known."""
    words = {word.lower(): word for word in known}
    if name.lower() in words:
        return [words[name.lower()]]
    return [words[w] for w in difflib.get_close_matches(name.lower(), words, cutoff=likeness)]
