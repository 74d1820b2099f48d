"""Which keys and values each hypothesis sees."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kutta.translate.hypothesis import Integers

IDLE = 4  # slots per hypothesis that nobody may see any more before they are removed


class Ancestors:
    """The slots that K hypotheses of B sentences see: those of their own earlier tokens.

    A step fills K further slots of every sentence, one for each hypothesis. `seen` (B, K, n) and
    the `places` (B, n) of the slots' tokens grow with them; `lengths` (B,) are tokens fed so far.
    """

    def __init__(self, sentences: int, beam: int) -> None:
        self.seen = np.zeros((sentences, beam, 0), np.bool_)
        self.places = np.zeros((sentences, 0), np.int64)
        self.lengths = np.zeros(sentences, np.int64)

    def visible(self) -> NDArray[np.bool_]:
        """What the next step sees, with the slots that it fills: (B, K, n + K)."""
        sentences, beam, _ = self.seen.shape
        own = np.broadcast_to(np.eye(beam, dtype=np.bool_), (sentences, beam, beam))
        return np.concatenate([self.seen, own], axis=2)

    def distances(self, clip: int) -> Integers:
        """The relative positions of the same slots, clip + those of -clip to 0: (B, n + K)."""
        sentences, beam, _ = self.seen.shape
        own = np.zeros((sentences, beam), np.int64)
        distance = np.concatenate([self.places - self.lengths[:, None], own], axis=1)
        return np.clip(distance, -clip, 0) + clip

    def extend(self, parents: Integers) -> None:
        """After a step: each hypothesis continues its parent, parents (B, K)."""
        sentences, beam, _ = self.seen.shape
        self.seen = self.visible()[np.arange(sentences)[:, None], parents]
        filled = np.broadcast_to(self.lengths[:, None], (sentences, beam))
        self.places = np.concatenate([self.places, filled], axis=1)
        self.lengths = self.lengths + 1

    def clear(self, columns: Sequence[int]) -> None:
        """Other sentences start in these columns."""
        self.seen[columns], self.lengths[columns] = False, 0

    def needed(self, columns: Sequence[int]) -> tuple[Integers, NDArray[np.bool_]]:
        """The slots that anybody sees in each of these columns, in order: (b, m) and a mask."""
        live = self.seen[columns].any(axis=1)
        most = int(live.sum(axis=1).max(initial=0))
        slots = np.argsort(~live, axis=1, kind="stable")[:, :most]
        return slots, np.take_along_axis(live, slots, axis=1)

    def select(
        self, columns: Sequence[int], slots: Integers, used: NDArray[np.bool_], total: int
    ) -> None:
        """Keep some columns and of each some slots (b, m), and have `total` columns."""
        b, m = slots.shape
        other = Ancestors(total, self.seen.shape[1])
        other.seen = np.zeros((total, self.seen.shape[1], m), np.bool_)
        kept = np.take_along_axis(self.seen[columns], slots[:, None], axis=2)
        other.seen[:b] = kept & used[:, None]
        other.places = np.zeros((total, m), np.int64)
        other.places[:b] = np.take_along_axis(self.places[columns], slots, axis=1)
        other.lengths[:b] = self.lengths[columns]
        self.seen, self.places, self.lengths = other.seen, other.places, other.lengths

    def idle(self) -> bool:
        """Whether so many slots are seen by nobody that it is time to remove them."""
        _, beam, n = self.seen.shape
        if n <= IDLE * beam:
            return False
        return n - int(self.seen.any(axis=1).sum(axis=1).max(initial=0)) > IDLE * beam
