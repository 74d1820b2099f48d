"""A corpus score with its signature, and metrics as two pure functions."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kutta.errors import InputError

Lines = Sequence[str]
References = Lines | Sequence[Lines]  # one text, or several that are parallel to each other
Counts = NDArray[np.float64]  # float64 adds integers exactly, and its products are fast


@dataclass(frozen=True)
class Score:
    """A corpus score with its signature."""

    name: str
    value: float
    details: str
    signature: str

    def __str__(self) -> str:
        value = ", ".join(filter(None, [f"{self.value:.2f}", self.details]))
        return f"{self.name} = {value} [{self.signature}]"

    def to_dict(self) -> dict[str, Any]:
        """The score as a dict for JSON, not rounded."""
        return asdict(self)


@dataclass(frozen=True)
class Metric:
    """A corpus metric; call it with hypotheses and references to get a Score.

    Counting is separate from scoring because a bootstrap resamples only the counts.
    """

    count: Callable[[Lines, Sequence[Lines]], Counts]  # texts -> (sentences, K)
    score: Callable[[Counts, int], Score]  # sums (K,), number of references -> Score

    def __call__(self, hypotheses: Lines, references: References) -> Score:
        texts = parallel_texts(hypotheses, references)
        return self.score(self.count(hypotheses, texts).sum(axis=0), len(texts))


def parallel_texts(hypotheses: Lines, references: References) -> list[Lines]:
    """The references as a list of texts, each with one line for every hypothesis."""
    single = not references or isinstance(references[0], str)
    texts = [cast(Lines, references)] if single else list(cast(Sequence[Lines], references))
    for number, text in enumerate(texts, start=1):
        if len(text) != len(hypotheses):
            which = "the reference has" if len(texts) == 1 else f"reference {number} has"
            raise InputError(
                f"The hypotheses have {len(hypotheses)} lines but {which} {len(text)}; "
                "line n of both must be a translation of the same sentence."
            )
    if not hypotheses:
        raise InputError("There is nothing to score: both texts are empty; give at least one line.")
    return texts
