"""sacreBLEU and chrF: sacrebleu's scores and signatures."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF

from kutta.metrics.bleu import bleu_details
from kutta.metrics.score import Counts, Lines, Metric, References, Score


def sacre_bleu(hypotheses: Lines, references: References, lowercase: bool = False) -> Score:
    """SacreBLEU's BLEU (13a tokens, exponential smoothing) of detokenised text."""
    return sacre_bleu_metric(lowercase)(hypotheses, references)


def chrf(
    hypotheses: Lines, references: References, word_order: int = 0, lowercase: bool = False
) -> Score:
    """The character n-gram F-score chrF2; with `word_order=2`, chrF2++."""
    return chrf_metric(word_order, lowercase)(hypotheses, references)


def sacre_bleu_metric(lowercase: bool = False) -> Metric:
    """The metric behind `sacre_bleu`."""
    # `force` only silences a warning about tokenised text; signatures state that instead.
    return _sacre(partial(BLEU, force=True, lowercase=lowercase))


def chrf_metric(word_order: int = 0, lowercase: bool = False) -> Metric:
    """The metric behind `chrf`."""
    return _sacre(partial(CHRF, word_order=word_order, lowercase=lowercase))


def _sacre(make: Callable[[], BLEU | CHRF]) -> Metric:
    # sacrebleu's own significance tests use these two private methods to separate counting from
    # scoring; its public functions go from text to score, which is too slow for a bootstrap.
    def count(hypotheses: Lines, references: Sequence[Lines]) -> Counts:
        counts = make()._extract_corpus_statistics(hypotheses, references)  # pyright: ignore[reportPrivateUsage]
        return np.array(counts, dtype=np.float64)

    def score(sums: Counts, references: int) -> Score:
        metric = make()
        metric.num_refs = references
        result = metric._compute_score_from_stats(sums.tolist())  # pyright: ignore[reportPrivateUsage]
        signature = metric.get_signature().format()
        if not isinstance(result, BLEUScore):
            return Score(result.name, result.score, "", signature)
        details = bleu_details(result.precisions, result.bp, result.sys_len, result.ref_len)
        return Score("sacreBLEU", result.score, details, signature)

    return Metric(count, score)
