"""[decode]: beam search and sampling."""

from collections.abc import Iterator
from typing import Any, TypedDict, Unpack

from kutta.config.mistakes import check_names
from kutta.config.section import Natural, Positive, Section, setting
from kutta.limits import BATCH_TOKENS, BEAM, OUTPUT_TOKENS, SEED


class SearchOptions(TypedDict, total=False):
    """The settings of [decode] that can be overridden per call; None keeps the setting.

    Type checkers cannot derive them from DecodeConfig; a test checks that both agree.
    """

    beam: int | None
    length_penalty: float | None
    min_length: int | None
    max_length: int | None
    no_repeat_ngram: int | None
    exact_stop: bool | None


class DecodeConfig(Section):
    """How translations are searched for."""

    beam: int = setting(4, "beam size", ge=1, le=BEAM)
    length_penalty: float = setting(
        0.6, "length penalty: score = log-probability / length^penalty", ge=-10.0, le=10.0
    )
    average: Positive = setting(5, "number of last checkpoints averaged into the final model")
    min_length: int = setting(0, "minimum translation length in tokens", ge=0, le=OUTPUT_TOKENS)
    max_length: int = setting(
        0,
        "maximum translation length in tokens; 0 for 2 x source length + 20",
        ge=0,
        le=OUTPUT_TOKENS,
    )
    no_repeat_ngram: Natural = setting(0, "never repeat an n-gram of this length; 0 for no limit")
    exact_stop: bool = setting(
        False, "search until no live hypothesis can be better; false stops when a beam has ended"
    )
    batch_tokens: int = setting(4096, "source tokens per batch", ge=8, le=BATCH_TOKENS)

    def mistakes(self) -> Iterator[str]:
        if 0 < self.max_length < self.min_length:
            longest = f"max_length = {self.max_length}"
            yield f"min_length = {self.min_length} is more than {longest}; lower it"

    def changed(self, **options: Unpack[SearchOptions]) -> "DecodeConfig":
        """A validated copy with these search options; None keeps the setting."""
        check_names(options, SearchOptions.__annotations__)
        changes: Any = {name: value for name, value in options.items() if value is not None}
        return DecodeConfig(**(self.model_dump() | changes))


class Sampling(Section):
    """How to sample a translation: from p^(1/temperature), restricted to the likeliest tokens."""

    temperature: float = setting(
        1.0, "sampling temperature; 1 leaves probabilities unchanged", gt=0.0
    )
    top_k: Natural = setting(0, "sample from the k likeliest tokens; 0 for all")
    top_p: float = setting(
        1.0, "sample from the fewest tokens whose probabilities add up to p", gt=0.0, le=1.0
    )
    seed: int = setting(1, "random seed", ge=0, le=SEED)
