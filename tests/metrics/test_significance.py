"""The paired bootstrap against plain resampling of texts, against sacrebleu, and calibrated."""

import gzip
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from kutta.errors import InputError
from kutta.metrics import METRICS, Metric, Score, multi_bleu
from kutta.metrics.significance import Comparison, paired_bootstrap


def noisy(lines: Sequence[str], rate: float, seed: int) -> list[str]:
    """The lines with a share of their words replaced: a system of a known quality."""
    rng = random.Random(seed)
    return [
        " ".join("?" if rng.random() < rate else word for word in line.split()) for line in lines
    ]


def sentences(count: int) -> list[str]:
    rng = random.Random(7)
    return [" ".join(rng.choices("abcdefghijklmno", k=rng.randint(5, 15))) for _ in range(count)]


class TestPairedBootstrap:
    references = sentences(60)
    worse, better = noisy(references, 0.2, seed=1), noisy(references, 0.05, seed=2)

    @pytest.mark.parametrize("name", METRICS)
    def test_equals_scoring_the_resampled_texts(self, name: str):
        samples, seed = 25, 3
        result = paired_bootstrap(
            self.worse, self.better, self.references, METRICS[name], samples, seed
        )
        rng = np.random.default_rng(seed)
        values: list[list[float]] = [[], []]
        for _ in range(samples):
            picks = rng.integers(60, size=60)
            reference = [self.references[i] for i in picks]
            for column, system in zip(values, (self.worse, self.better), strict=True):
                column.append(METRICS[name]([system[i] for i in picks], reference).value)
        for column, interval in zip(values, (result.a_interval, result.b_interval), strict=True):
            assert interval == pytest.approx(np.quantile(column, [0.025, 0.975]), abs=1e-9)
        differences = [b - a for a, b in zip(*values, strict=True)]
        mean = math.fsum(differences) / samples
        real = abs(result.b.value - result.a.value)
        extreme = sum(abs(d - mean) >= real for d in differences)
        assert result.p_value == (extreme + 1) / (samples + 1)

    def test_the_p_value_counts_the_resampled_differences_that_are_as_large(self):
        """Of two systems nearly as good, so that many are: plain arithmetic on resampled texts."""
        metric, samples, seed = METRICS["bleu"], 80, 5
        twin = noisy(self.references, 0.17, seed=9)
        result = paired_bootstrap(self.worse, twin, self.references, metric, samples, seed)
        rng = np.random.default_rng(seed)
        differences: list[float] = []
        for _ in range(samples):
            picks = rng.integers(60, size=60)
            reference = [self.references[i] for i in picks]
            a, b = (metric([text[i] for i in picks], reference) for text in (self.worse, twin))
            differences.append(b.value - a.value)
        mean = math.fsum(differences) / samples
        real = abs(metric(twin, self.references).value - metric(self.worse, self.references).value)
        extreme = sum(abs(difference - mean) >= real for difference in differences)
        assert 8 < extreme < 72, "else the test would say little"
        assert result.p_value == (extreme + 1) / (samples + 1)
        assert (result.samples, result.seed) == (samples, seed)

    def test_the_line_has_every_number(self):
        a, b = Score("BLEU", 30.0, "", "sig"), Score("BLEU", 28.5, "", "sig")
        line = str(Comparison(a, b, (29.001, 31.239), (27.5, 29.5), 0.01234, 100, 7))
        assert line == (
            "BLEU: A = 30.00 (29.00 to 31.24), B = 28.50 (27.50 to 29.50), "
            "B - A = -1.50, p = 0.0123 [sig|bs:100|seed:7]"
        )

    @pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
    def test_identical_systems_never_differ(self, metric: Metric):
        result = paired_bootstrap(self.worse, self.worse, self.references, metric, samples=50)
        assert result.p_value == 1.0
        assert result.a_interval == result.b_interval

    def test_a_clear_winner_is_significant_as_sacrebleu_says_too(self):
        result = paired_bootstrap(self.worse, self.better, self.references, METRICS["sacrebleu"])
        systems = [("worse", self.worse), ("better", self.better)]
        peer = PairedTest(systems, {"BLEU": sacrebleu.BLEU()}, [self.references], "bs")
        worse, better = peer()[1]["BLEU"]
        assert result.samples == 1000, "as many as sacrebleu takes"
        assert result.p_value < 0.01
        assert better.p_value < 0.01
        assert (result.a.value, result.b.value) == pytest.approx((worse.score, better.score))
        for interval, theirs in ((result.a_interval, worse), (result.b_interval, better)):
            assert sum(interval) / 2 == pytest.approx(theirs.mean, abs=1)
            assert (interval[1] - interval[0]) / 2 == pytest.approx(theirs.ci, rel=0.15)

    def test_equally_good_systems_seem_different_as_seldom_as_the_p_value_says(self):
        p_values = [
            paired_bootstrap(
                noisy(self.references, 0.2, seed=1000 + i),
                noisy(self.references, 0.2, seed=2000 + i),
                self.references,
                METRICS["bleu"],
                samples=100,
                seed=i,
            ).p_value
            for i in range(60)
        ]
        # Uniform p-values: 3 of 60 below 0.05 are expected, 9 would be one case in a thousand.
        assert sum(p < 0.05 for p in p_values) < 9
        assert np.mean(p_values) == pytest.approx(0.5, abs=0.12)

    def test_the_seed_decides_everything(self):
        def run(seed: int):
            return paired_bootstrap(
                self.worse, self.better, self.references, METRICS["bleu"], 50, seed
            )

        assert run(1) == run(1)
        assert run(1).a_interval != run(2).a_interval

    def test_swapping_the_systems_swaps_the_answer(self):
        metric = METRICS["bleu"]
        twin = noisy(self.references, 0.15, seed=9)
        there = paired_bootstrap(self.worse, twin, self.references, metric, 100)
        back = paired_bootstrap(twin, self.worse, self.references, metric, 100)
        assert 1 / 101 < there.p_value == back.p_value < 1
        assert (there.a, there.a_interval) == (back.b, back.b_interval)

    def test_several_references_and_own_metric_settings(self):
        metric = multi_bleu(lowercase=True)
        result = paired_bootstrap(
            self.worse, self.better, [self.references, self.better], metric, 10
        )
        assert result.b.value == pytest.approx(100)
        assert "nrefs:2|case:lc-ascii" in result.signature
        assert result.signature.endswith("|bs:10|seed:1")
        assert json.loads(json.dumps(result.to_dict()))["signature"] == result.signature

    def test_prints_one_line(self):
        text = str(paired_bootstrap(self.worse, self.better, self.references, METRICS["chrf"], 20))
        assert "\n" not in text
        assert text.startswith("chrF2: A = ")
        assert "B - A = +" in text
        assert "p = 0.0476" in text  # the smallest that 20 samples can give: 1/21

    def test_one_sample_is_enough_to_be_resampled(self):
        """Its own mean has no spread, so no difference is as large as the real one."""
        result = paired_bootstrap(self.worse, self.better, self.references, METRICS["bleu"], 1)
        assert result.p_value == 1 / 2
        assert result.a_interval[0] == result.a_interval[1]

    def test_wrong_input_is_told(self):
        metric = METRICS["bleu"]
        with pytest.raises(InputError, match="have 1 lines but the reference has 2"):
            paired_bootstrap(["a", "b"], ["a"], ["a", "b"], metric)
        with pytest.raises(InputError, match="at least 1 sample, not 0"):
            paired_bootstrap(["a"], ["a"], ["a"], metric, samples=0)


def test_real_references_keep_their_order_of_quality(shared_data: Path):
    with gzip.open(shared_data / "multi30k-bpe/en-de/test2016.de.gz", "rt", encoding="utf-8") as f:
        references = [line.rstrip("\n").replace("@@ ", "") for line in f][:300]
    for metric in METRICS.values():
        scores = [
            metric(noisy(references, rate, seed=4), references).value for rate in (0, 0.1, 0.3)
        ]
        assert scores[0] == pytest.approx(100)
        assert scores == sorted(scores, reverse=True)
