"""What all sections of a config have in common."""

from collections.abc import Iterator
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A group of settings: unknown names are errors, values cannot change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        """Settings that do not go together, each with the sentence to say where they do not."""
        yield from ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for wrong, sentence in self.mistakes():
            if wrong:
                raise ValueError(sentence)
        return self
