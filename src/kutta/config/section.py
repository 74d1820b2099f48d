"""The base class of all sections of a config."""

from collections.abc import Iterator
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A group of settings: unknown names are errors, and values cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        """Checks of settings against each other: whether they conflict, and the message."""
        yield from ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for wrong, sentence in self.mistakes():
            if wrong:
                raise ValueError(sentence)
        return self
