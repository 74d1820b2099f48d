"""[decode]: the search for translations."""

from collections.abc import Iterator

from pydantic import Field

from kutta.config.section import Section


class DecodeConfig(Section):
    """How translations are searched for."""

    beam: int = Field(default=4, ge=1, description="hypotheses kept")
    length_penalty: float = Field(
        default=0.6, description="score = log-probability / length^penalty"
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
