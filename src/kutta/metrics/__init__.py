"""BLEU, sacreBLEU and chrF for translations, ROUGE for summaries. Every score has a signature."""

from kutta.metrics.bleu import BLEU, CHRF, multi_bleu, sacre
from kutta.metrics.moses import moses_detokenize, moses_rules, moses_signature
from kutta.metrics.rouge import ngram_overlap, rouge, sequence_overlap
from kutta.metrics.score import Metric, Score
from kutta.metrics.significance import Comparison, paired_bootstrap

METRICS: dict[str, Metric] = {
    "bleu": multi_bleu(),
    "sacrebleu": sacre(BLEU),
    "chrf": sacre(CHRF),
    "chrf++": sacre(CHRF, word_order=2),
    "rouge1": rouge("1", ngram_overlap(1)),
    "rouge2": rouge("2", ngram_overlap(2)),
    "rougel": rouge("L", sequence_overlap),
}

__all__ = [
    "BLEU",
    "CHRF",
    "METRICS",
    "Comparison",
    "Metric",
    "Score",
    "moses_detokenize",
    "moses_rules",
    "moses_signature",
    "multi_bleu",
    "paired_bootstrap",
    "sacre",
]
