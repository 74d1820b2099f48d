"""The state of a checkpoint: strict types, sensible ranges, and no contradictions."""

import json
import math
from typing import Any

import pytest

from kutta.errors import InputError
from kutta.training.state import Progress, Scale, State
from kutta.training.window import Window

STATE = State(
    step=4,
    position=24,
    pieces=2,
    bad_steps=1,
    scheduled=True,
    scale=Scale(value=1.0, steady=3),
    progress=Progress(1.5, 2, 1, "bleu", Window(2, 1, 30, 0.1, 0.2, 0.3)),
    versions={"kutta": "1"},
)


def parsed(values: Any) -> State:
    return State.parse(json.dumps(values).encode(), step=4, pieces=2, micro_batches=6)


def test_a_state_is_read_as_it_was_written() -> None:
    assert parsed(STATE.to_dict()) == STATE


def test_the_state_of_an_earlier_version_is_completed() -> None:
    values = STATE.to_dict()
    for key in ("scheduled", "scale", "versions"):
        del values[key]
    del values["progress"]["window"], values["progress"]["by"]
    assert parsed(values).progress == Progress(1.5, 2, 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("step", value) for value in (3, 0, -4, 4.5, "4", None, True, 10**400)),
        *(("position", value) for value in (23, 48, 0, 24.5, None)),
        *(("pieces", value) for value in (1, 0, "2")),
        *(("bad_steps", value) for value in (-1, 5, 0.5)),
        *(("scheduled", value) for value in (1, "yes")),
        *(("scale.value", value) for value in (0.0, -1.0, "1", math.nan, math.inf)),
        ("scale.steady", -1),
        *(("progress.best", value) for value in (math.nan, "2", [], None)),
        *(("progress.best_step", value) for value in (5, -1, 1.5, 0)),
        *(("progress.since_best", value) for value in (-1, None)),
        ("progress.by", "chance"),
        *(("progress.window.updates", value) for value in (-1, 5)),
        ("progress.window.loss", math.nan),
        ("progress", []),
        ("versions", {"kutta": 1}),
    ],
)
def test_a_wrong_value_is_an_error(key: str, value: Any) -> None:
    values: Any = STATE.to_dict()
    *sections, last = key.split(".")
    part = values
    for section in sections:
        part = part[section]
    part[last] = value
    with pytest.raises(InputError, match=r"^state\.json") as caught:
        parsed(values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_not_a_state_is_an_error(text: bytes) -> None:
    with pytest.raises(InputError, match=r"^state\.json"):
        State.parse(text, 4, 2, 6)
