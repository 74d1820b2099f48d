"""The scores of translations, as the text of a run asks for: raw, or already split."""

from collections.abc import Sequence
from dataclasses import replace

from kutta.config import DataConfig
from kutta.data.tokenizer import join_subwords
from kutta.metrics.bleu import BLEU, CHRF, multi_bleu, sacre
from kutta.metrics.moses import moses_detokenize, moses_rules, moses_signature
from kutta.metrics.score import Counts, Metric, Score


def reference_texts(lines: Sequence[str], data: DataConfig) -> list[str]:
    """References in the form of hypotheses: subwords of split text are joined to words."""
    return [join_subwords(line) for line in lines] if data.tokenizer == "split" else list(lines)


def score_texts(
    hypotheses: Sequence[str],
    references: Sequence[str],
    data: DataConfig,
    raw: Sequence[str] | None = None,
) -> list[Score]:
    """Tokenised BLEU, sacreBLEU and chrF; the last two against `raw` references if given."""
    metrics = metrics_of(data, raw is not None)
    texts = {name: references if raw is None or name == "bleu" else raw for name in metrics}
    return [metric(hypotheses, texts[name]) for name, metric in metrics.items()]


def metrics_of(data: DataConfig, raw: bool = False) -> dict[str, Metric]:
    """The metrics of an evaluation by name, as the text of a run asks for.

    sacreBLEU and chrF are for raw text. Translations of split text are detokenised and scored
    against raw references (`raw`); without these, name and signature state that the text was
    tokenised, because such a score is not comparable with sacreBLEU of raw text.
    """
    split = data.tokenizer == "split"
    rules = "" if split and not raw else moses_rules(data.target)
    lowercase = split and raw and data.lowercased
    bleu = multi_bleu(language=None if split else rules, split_compounds=data.split_compounds)
    kinds = {"sacrebleu": BLEU, "chrf": CHRF}
    metrics = {name: sacre(kind, lowercase=lowercase) for name, kind in kinds.items()}
    if split:
        metrics = {name: _of_split_text(metric, rules) for name, metric in metrics.items()}
    return {"bleu": bleu, **metrics}


def _of_split_text(metric: Metric, rules: str) -> Metric:
    """The metric of hypotheses detokenised by Moses' rules, or without rules as they are."""

    def count(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counts:
        texts = moses_detokenize(hypotheses, rules) if rules else hypotheses
        return metric.count(texts, references)

    def score(sums: Counts, references: int) -> Score:
        found = metric.score(sums, references)
        how = f"detok:{moses_signature(rules)}" if rules else "text:tokenised"
        name = found.name if rules else tokenised(found.name)
        return replace(found, name=name, signature=f"{found.signature}|{how}")

    return Metric(count, score)


def tokenised(metric: str) -> str:
    """The name of a metric for raw text that was computed on tokenised text."""
    return f"{metric} (tokenised text)"


def valid_score(hypotheses: Sequence[str], references: Sequence[str], data: DataConfig) -> Score:
    """The validation score during training: tokenised BLEU of split text, else sacreBLEU."""
    tokenised_text = data.tokenizer == "split" or data.split_compounds
    metric = metrics_of(data)["bleu" if tokenised_text else "sacrebleu"]
    return metric(hypotheses, reference_texts(references, data))
