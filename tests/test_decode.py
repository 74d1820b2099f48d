"""Options of the search: a changed copy is a parsed config, and a mistake is one sentence."""

import inspect
from typing import Any, Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kutta.config import Config, DecodeConfig, Sampling, SearchOptions
from kutta.config.signature import spelled_out
from kutta.errors import InputError

penalties = st.floats(-12.0, 12.0)
counts = st.integers(-1, 9)
OPTIONS = {
    "beam": counts,
    "length_penalty": penalties,
    "min_length": counts,
    "max_length": counts,
    "no_repeat_ngram": counts,
}
FURTHER = {"average": st.integers(1, 9), "batch_tokens": st.integers(8, 99)}


def parsed(decode: dict[str, Any]) -> DecodeConfig | None:
    """The section of a config that is read from plain values; None where it is refused."""
    values = {"run": "r", "data": {"dir": "d", "source": "a", "target": "b"}, "decode": decode}
    try:
        return Config.parse(values).decode
    except InputError:
        return None


@given(
    before=st.fixed_dictionaries({}, optional=OPTIONS | FURTHER),
    change=st.fixed_dictionaries({}, optional={k: v | st.none() for k, v in OPTIONS.items()}),
)
def test_a_changed_copy_is_a_freshly_parsed_config(
    before: dict[str, Any], change: dict[str, Any]
) -> None:
    config = parsed(before)
    if config is None:
        return
    expected = parsed(before | {k: v for k, v in change.items() if v is not None})
    if expected is None:
        with pytest.raises(InputError):
            config.changed(**change)
    else:
        assert config.changed(**change) == expected
    assert config == parsed(before)


def test_the_options_are_the_settings_that_decide_what_is_found() -> None:
    """Not how many checkpoints a model is the average of, nor how many lines are read at once."""
    settings = DecodeConfig.model_fields
    assert SearchOptions.__annotations__.keys() == settings.keys() - {"average", "batch_tokens"}
    for name, kind in SearchOptions.__annotations__.items():
        assert kind == settings[name].annotation | None  # type: ignore[operator]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beam": 0}, "beam = 0 is not valid: it must be at least 1."),
        ({"length_penalty": 10.5}, "length_penalty = 10.5 is not valid: it must be at most 10."),
        ({"length_penalty": -11}, "length_penalty = -11 is not valid: it must be at least -10."),
        ({"length_penalty": "high"}, 'length_penalty = "high" is not valid: write a number.'),
        ({"min_length": -1}, "min_length = -1 is not valid: it must be at least 0."),
        ({"max_length": -1}, "max_length = -1 is not valid: it must be at least 0."),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram = -1 is not valid: it must be at least 0."),
        (
            {"min_length": 7, "max_length": 6},
            "min_length = 7 is more than max_length = 6; lower it.",
        ),
        (
            {"beam": 2.5},
            "beam = 2.5 is not valid: write an integer, without a point or an exponent.",
        ),
        (
            {"beam": True},
            "beam = true is not valid: write an integer, without a point or an exponent.",
        ),
        ({"bean": 4}, "There is no option bean; did you mean beam?"),
        (
            {"lenght_penalty": 1.0},
            "There is no option lenght_penalty; did you mean length_penalty?",
        ),
        (
            {"average": 3},
            "There is no option average; there are beam, length_penalty, min_length, max_length, "
            "no_repeat_ngram, exact_stop.",
        ),
    ],
    ids=str,
)
def test_a_wrong_option_is_answered_with_one_sentence(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        DecodeConfig().changed(**options)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": 0}, "temperature = 0 is not valid: it must be more than 0."),
        (
            {"temperature": float("inf")},
            "temperature = Infinity is not valid: write a finite number.",
        ),
        ({"top_k": -1}, "top_k = -1 is not valid: it must be at least 0."),
        ({"top_p": 0.0}, "top_p = 0.0 is not valid: it must be more than 0."),
        ({"top_p": 1.1}, "top_p = 1.1 is not valid: it must be at most 1."),
        ({"seed": -1}, "seed = -1 is not valid: it must be at least 0."),
        ({"seed": "x"}, 'seed = "x" is not valid: write an integer, without a point or an '),
        ({"temprature": 2.0}, "there is no setting temprature; did you mean temperature?"),
    ],
    ids=str,
)
def test_a_wrong_sampling_is_answered_with_one_sentence(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        Sampling(**options)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_options_are_spelled_out_before_what_else_is_given_by_name() -> None:
    @spelled_out({"beam": int | None, "seed": int})
    def function(lines: str, *, chunk: int = 3, **options: Unpack[SearchOptions]) -> None: ...

    shown = "(lines: str, *, beam: int | None = None, seed: int = None, chunk: int = 3) -> None"
    assert str(inspect.signature(function)) == shown
