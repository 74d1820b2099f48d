"""[decode]: beam search and sampling."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pydantic import Field

from kutta.config.mistakes import check_names, in_one_sentence
from kutta.config.section import Section


class SearchOptions(TypedDict, total=False):
    """The settings of [decode] that can be overridden per call; None keeps the setting.

    Type checkers cannot derive them from DecodeConfig; a test checks that both agree.
    """

    beam: int | None
    length_penalty: float | None
    min_length: int | None
    max_length: int | None
    no_repeat_ngram: int | None


class DecodeConfig(Section):
    """How translations are searched for."""

    beam: int = Field(default=4, ge=1, description="beam size")
    length_penalty: float = Field(
        default=0.6,
        ge=-10.0,
        le=10.0,
        description="length penalty: score = log-probability / length^penalty",
    )
    average: int = Field(
        default=5, ge=1, description="number of last checkpoints averaged into the final model"
    )
    min_length: int = Field(default=0, ge=0, description="minimum translation length in tokens")
    max_length: int = Field(
        default=0,
        ge=0,
        description="maximum translation length in tokens; 0 for 2 x source length + 20",
    )
    no_repeat_ngram: int = Field(
        default=0, ge=0, description="never repeat an n-gram of this length; 0 for no limit"
    )
    batch_tokens: int = Field(default=4096, ge=8, description="source tokens per batch")

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        yield (
            0 < self.max_length < self.min_length,
            f"min_length = {self.min_length} is more than max_length = {self.max_length}; lower it",
        )

    def changed(self, **options: Unpack[SearchOptions]) -> "DecodeConfig":
        """A validated copy with these search options; None keeps the setting."""
        check_names(options, SearchOptions.__annotations__)
        changes = {name: value for name, value in options.items() if value is not None}
        with in_one_sentence():
            return DecodeConfig.model_validate(self.model_dump() | changes)


class Sampling(Section):
    """How to sample a translation: from p^(1/temperature), restricted to the likeliest tokens."""

    temperature: float = Field(
        default=1.0, gt=0.0, description="sampling temperature; 1 leaves probabilities unchanged"
    )
    top_k: int = Field(default=0, ge=0, description="sample from the k likeliest tokens; 0 for all")
    top_p: float = Field(
        default=1.0,
        gt=0.0,
        le=1.0,
        description="sample from the fewest tokens whose probabilities add up to p",
    )
    seed: int = Field(default=1, ge=0, description="random seed")

    if not TYPE_CHECKING:  # type checkers derive the parameters from the fields

        def __init__(self, **options: Any) -> None:
            check_names(options, type(self).model_fields)
            with in_one_sentence():
                super().__init__(**options)
