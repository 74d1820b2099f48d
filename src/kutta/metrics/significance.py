"""Significance of the difference between two systems: the paired bootstrap."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kutta.errors import InputError
from kutta.metrics.score import Counts, Lines, Metric, References, Score, parallel_texts


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same sentences: scores, 95% intervals, and the p-value of a difference."""

    a: Score
    b: Score
    a_interval: tuple[float, float]
    b_interval: tuple[float, float]
    p_value: float
    samples: int
    seed: int

    @property
    def signature(self) -> str:
        """The metric's signature, and how the resampling was done."""
        return f"{self.a.signature}|bs:{self.samples}|seed:{self.seed}"

    def __str__(self) -> str:
        a = "{:.2f} ({:.2f} to {:.2f})".format(self.a.value, *self.a_interval)
        b = "{:.2f} ({:.2f} to {:.2f})".format(self.b.value, *self.b_interval)
        difference = f"B - A = {self.b.value - self.a.value:+.2f}, p = {self.p_value:.4f}"
        return f"{self.a.name}: A = {a}, B = {b}, {difference} [{self.signature}]"

    def to_dict(self) -> dict[str, Any]:
        """The comparison as a dict for JSON, with its full signature."""
        return asdict(self) | {"signature": self.signature}


def paired_bootstrap(
    system_a: Lines,
    system_b: Lines,
    references: References,
    metric: Metric,
    samples: int = 1000,
    seed: int = 1,
) -> Comparison:
    """Score both systems on the same resampled test sets (`metric`: one of METRICS, or multi_bleu).

    The p-value is two-sided: how often a difference as large as the observed one occurs among the
    resampled differences, shifted to mean zero as under the null hypothesis.
    """
    if samples < 1:
        raise InputError(f"The bootstrap needs at least 1 sample, not {samples}; try 1000.")
    texts = parallel_texts(system_a, references)
    parallel_texts(system_b, references)
    counts = [metric.count(system, texts) for system in (system_a, system_b)]
    a, b = (metric.score(count.sum(axis=0), len(texts)) for count in counts)
    rng = np.random.default_rng(seed)
    both = np.hstack(counts)
    resampled = np.stack([_draw(rng, len(both)) @ both for _ in range(samples)])
    values_a, values_b = (
        np.array([metric.score(sums, len(texts)).value for sums in system])
        for system in np.split(resampled, 2, axis=1)
    )
    differences = values_b - values_a
    extreme = np.abs(differences - differences.mean()) >= abs(b.value - a.value)
    p_value = (int(extreme.sum()) + 1) / (samples + 1)
    return Comparison(a, b, _interval(values_a), _interval(values_b), p_value, samples, seed)


def _draw(rng: np.random.Generator, sentences: int) -> Counts:
    """How often each sentence occurs in one resampled test set, (sentences,)."""
    picks = rng.integers(sentences, size=sentences)
    return np.bincount(picks, minlength=sentences).astype(np.float64)


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The middle 95% of the resampled values."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
