"""Hypotheses that repeat themselves without end."""

import numpy as np
from numpy.typing import NDArray

LONGEST_PERIOD = 8  # tokens of what is repeated
SHORTEST_LOOP = 32  # tokens of all repetitions
EVERY = 8  # steps between two looks, which cost little then


def looping(tokens: NDArray[np.int64], limits: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows of tokens (R, T) end in a loop, (R,); limits (R,) are their longest lengths.

    A loop is a phrase of up to LONGEST_PERIOD tokens that is repeated for more than half of the
    limit. As the limit is twice the length of the source and some, no faithful translation does
    that: the repetitions alone are longer than the source.
    """
    rows, length = tokens.shape
    found = np.zeros(rows, np.bool_)
    needed = np.maximum(limits // 2, SHORTEST_LOOP)
    if length % EVERY or length < needed.min(initial=length + 1):
        return found
    for period in range(1, LONGEST_PERIOD + 1):
        differs: NDArray[np.bool_] = (tokens[:, period:] != tokens[:, :-period])[:, ::-1]
        # The number of equal tokens at the end: all, where none differs.
        first = np.argmax(differs, axis=1).astype(np.int64)
        equal = np.where(np.any(differs, axis=1), first, np.int64(differs.shape[1]))
        found |= equal + period >= needed
    return found
