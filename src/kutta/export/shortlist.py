"""Learning a shortlist from the training corpus: the likely translations of each token.

IBM Model 1 (Brown et al., 1993): every target token of a pair comes from one of its source tokens,
with a probability t(target | source) that expectation-maximisation finds. Pairs are drawn in
chunks; each is aligned by itself, and the expected counts are added up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kutta.data.store import Store
from kutta.data.tokenizer import EOS

COMBINATIONS = 8_000_000  # of a source and a target token of a pair, in a chunk
CHUNKS = 8
ROUNDS = 4  # of expectation and maximisation
LIKELY = 48  # target tokens of a source token
LEAST = 0.01  # probability of such a token
FREQUENT = 256  # target tokens that every sentence lists

# numpy's functions lose the kind of number, so the names say it and not the types.
Integers = NDArray[Any]  # int64
Floats = NDArray[Any]  # float64


@dataclass(frozen=True)
class Counts:
    """Expected counts of pairs of tokens, by key = source * targets + target, in order."""

    keys: Integers
    counts: Floats

    def __add__(self, other: "Counts") -> "Counts":
        keys, where = np.unique(np.concatenate([self.keys, other.keys]), return_inverse=True)
        return Counts(keys, np.bincount(where, np.concatenate([self.counts, other.counts])))


def learn(store: Store, sources: int, targets: int, joint: bool) -> tuple[Integers, Integers]:
    """Candidates (sources, N) of every source token, and frequent target tokens (F,).

    With a `joint` vocabulary each token is a candidate of itself, for names and numbers.
    """
    total = Counts(np.zeros(0, np.int64), np.zeros(0))
    seen = np.zeros(targets, np.int64)
    for pairs in _chunks(store):
        total = total + _aligned(pairs, targets)
        for _, target in pairs:
            np.add.at(seen, target, 1)
    frequent = np.argsort(-seen, kind="stable")[:FREQUENT]
    found = _likely(total, sources, targets)
    own = np.arange(sources) if joint else np.full(sources, EOS)
    return np.concatenate([found, own[:, None]], axis=1), frequent


def _chunks(store: Store) -> Iterator[list[tuple[Integers, Integers]]]:
    """Pairs drawn from the whole store, as many as there may be combinations of tokens."""
    numbers = np.random.default_rng(0).permutation(len(store))
    source, target = (lengths.astype(np.int64) for lengths in store.lengths())
    passed = np.cumsum((source * target)[numbers]) // COMBINATIONS
    for chunk in range(min(CHUNKS, int(passed[-1]) + 1) if len(numbers) else 0):
        pairs = store.gather(numbers[passed == chunk])
        whole = [(s.astype(np.int64), t.astype(np.int64)) for s, t in pairs if len(s) and len(t)]
        if whole:
            yield whole


def _aligned(pairs: list[tuple[Integers, Integers]], targets: int) -> Counts:
    """The expected counts of the tokens of some pairs."""
    keys = np.concatenate([(s[:, None] * targets + t).ravel() for s, t in pairs])
    # The target position of every combination, counted through all pairs.
    places: Integers = np.concatenate(list(_places(pairs)))
    known, where = np.unique(keys, return_inverse=True)
    source = known // targets
    likely, counts = np.ones(len(known)), np.zeros(0)
    for _ in range(ROUNDS):
        each = likely[where]
        each /= np.bincount(places, each)[places]
        counts = np.bincount(where, each)
        likely = counts / np.bincount(source, counts)[source]
    return Counts(known, counts)


def _places(pairs: list[tuple[Integers, Integers]]) -> Iterator[Integers]:
    start = 0
    for source, target in pairs:
        yield np.tile(np.arange(start, start + len(target)), len(source))
        start += len(target)


def _likely(total: Counts, sources: int, targets: int) -> Integers:
    """The most likely target tokens (sources, LIKELY) of every source token; else EOS."""
    source, target = total.keys // targets, total.keys % targets
    share = total.counts / np.bincount(source, total.counts, minlength=sources)[source]
    order = np.lexsort((-share, source))
    source, target, share = source[order], target[order], share[order]
    rank = np.arange(len(source)) - np.searchsorted(source, source)
    kept = (rank < LIKELY) & (share >= LEAST)
    found = np.full((sources, LIKELY), EOS, np.int64)
    found[source[kept], rank[kept]] = target[kept]
    return found
