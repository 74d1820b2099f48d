"""[decode]: the search for translations, and drawing them instead."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pydantic import Field

from kutta.config.mistakes import check_names, in_one_sentence
from kutta.config.section import Section


class SearchOptions(TypedDict, total=False):
    """The settings of [decode] that decide which translation is found; None changes nothing.

    Written down because type checkers cannot derive them from DecodeConfig; a test compares.
    """

    beam: int | None
    length_penalty: float | None
    min_length: int | None
    max_length: int | None
    no_repeat_ngram: int | None


class DecodeConfig(Section):
    """How translations are searched for."""

    beam: int = Field(default=4, ge=1, description="hypotheses kept")
    length_penalty: float = Field(
        default=0.6, ge=-10.0, le=10.0, description="score = log-probability / length^penalty"
    )
    average: int = Field(
        default=5, ge=1, description="last checkpoints averaged into the final model"
    )
    min_length: int = Field(default=0, ge=0, description="shortest translation, in tokens")
    max_length: int = Field(default=0, ge=0, description="longest translation; 0: 2 x source + 20")
    no_repeat_ngram: int = Field(
        default=0, ge=0, description="no n-gram of this length twice in a translation; 0: allowed"
    )
    batch_tokens: int = Field(default=4096, ge=8, description="source tokens translated at once")

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        yield (
            0 < self.max_length < self.min_length,
            f"min_length = {self.min_length} is more than max_length = {self.max_length}; lower it",
        )

    def changed(self, **options: Unpack[SearchOptions]) -> "DecodeConfig":
        """A copy with these options of the search, checked as a config is; None changes nothing."""
        check_names(options, SearchOptions.__annotations__)
        changes = {name: value for name, value in options.items() if value is not None}
        with in_one_sentence():
            return DecodeConfig.model_validate(self.model_dump() | changes)


class Sampling(Section):
    """How to draw a translation: from p^(1/temperature), cut to the likeliest tokens."""

    temperature: float = Field(default=1.0, gt=0.0, description="1 is the model's own")
    top_k: int = Field(default=0, ge=0, description="likeliest tokens to draw from; 0: all")
    top_p: float = Field(
        default=1.0, gt=0.0, le=1.0, description="draw from the fewest tokens with this probability"
    )
    seed: int = Field(default=1, ge=0, description="what is drawn follows from it")

    if not TYPE_CHECKING:  # type checkers derive the parameters from the fields

        def __init__(self, **options: Any) -> None:
            check_names(options, type(self).model_fields)
            with in_one_sentence():
                super().__init__(**options)
