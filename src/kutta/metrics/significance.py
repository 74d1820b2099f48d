"""Significance of the difference between two systems: the paired bootstrap."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kutta.errors import InputError
from kutta.metrics.score import Lines, Metric, References, Score, parallel_texts


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
    rng, both, size = np.random.default_rng(seed), np.hstack(counts), len(system_a)
    # How often each sentence occurs in a resampled test set, as floats: their products are fast.
    draws = (np.bincount(rng.integers(size, size=size), minlength=size) for _ in range(samples))
    resampled = np.stack([draw.astype(np.float64) @ both for draw in draws])
    values = [
        np.array([metric.score(sums, len(texts)).value for sums in system])
        for system in np.split(resampled, 2, axis=1)
    ]
    middle = (np.percentile(system, [2.5, 97.5]) for system in values)  # 95% of the values
    in_a, in_b = ((float(low), float(high)) for low, high in middle)
    differences = values[1] - values[0]
    extreme = np.abs(differences - differences.mean()) >= abs(b.value - a.value)
    p_value = (int(extreme.sum()) + 1) / (samples + 1)
    return Comparison(a, b, in_a, in_b, p_value, samples, seed)
