"""Hypotheses that repeat themselves without end."""

import numpy as np
from numpy.typing import NDArray

LONGEST_PERIOD = 8  # tokens of what is repeated
SHORTEST_LOOP = 32  # tokens of all repetitions
EVERY = 8  # steps between two looks, which cost little then


def looping(
    tokens: NDArray[np.int64], lengths: NDArray[np.int64], limits: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which rows of tokens (R, T) end in a loop, (R,).

    The newest token is the last, with BOS before the first of the row's lengths (R,), and limits
    (R,) are the longest lengths. A loop is a phrase of up to LONGEST_PERIOD tokens that is repeated
    for more than half of the limit. As the limit is twice the length of the source and some, no
    faithful translation does that: the repetitions alone are longer than the source.
    """
    found = np.zeros(len(tokens), np.bool_)
    needed = np.maximum(limits // 2, SHORTEST_LOOP)
    rows = np.flatnonzero((lengths % EVERY == 0) & (lengths >= needed))
    if not len(rows):
        return found
    tokens = tokens[rows]
    for period in range(1, LONGEST_PERIOD + 1):
        differs: NDArray[np.bool_] = (tokens[:, period:] != tokens[:, :-period])[:, ::-1]
        # The number of equal tokens at the end; BOS differs from all that follow it.
        equal = np.argmax(differs, axis=1).astype(np.int64)
        found[rows] |= equal + period >= needed[rows]
    return found
