"""Metrics: tokenised BLEU, sacreBLEU and chrF for translations, ROUGE for summaries.

Every score has a signature.
"""

from kutta.metrics.bleu import multi_bleu, tokenized_bleu
from kutta.metrics.moses import (
    moses_detokenize,
    moses_languages,
    moses_rules,
    moses_signature,
    moses_tokenize,
    split_hyphens,
)
from kutta.metrics.rouge import ngram_overlap, rouge, sequence_overlap
from kutta.metrics.sacre import chrf, chrf_metric, sacre_bleu, sacre_bleu_metric
from kutta.metrics.score import Lines, Metric, References, Score, parallel_texts
from kutta.metrics.significance import Comparison, paired_bootstrap

METRICS: dict[str, Metric] = {
    "bleu": multi_bleu(),
    "sacrebleu": sacre_bleu_metric(),
    "chrf": chrf_metric(),
    "chrf++": chrf_metric(word_order=2),
    "rouge1": rouge("1", ngram_overlap(1)),
    "rouge2": rouge("2", ngram_overlap(2)),
    "rougel": rouge("L", sequence_overlap),
}

__all__ = [
    "METRICS",
    "Comparison",
    "Lines",
    "Metric",
    "References",
    "Score",
    "chrf",
    "moses_detokenize",
    "moses_languages",
    "moses_rules",
    "moses_signature",
    "moses_tokenize",
    "multi_bleu",
    "paired_bootstrap",
    "parallel_texts",
    "sacre_bleu",
    "split_hyphens",
    "tokenized_bleu",
]
