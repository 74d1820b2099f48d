"""Evaluating a model on test sets: translate, save the hypotheses, and score them."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from kutta.config import DataConfig, DecodeConfig, SearchOptions
from kutta.data.tokenizer import join_pieces
from kutta.errors import InputError
from kutta.files import write_text
from kutta.metrics import (
    BLEU,
    CHRF,
    Metric,
    Score,
    moses_detokenize,
    moses_rules,
    moses_signature,
    multi_bleu,
    sacre,
)
from kutta.metrics.score import Counts
from kutta.runs import Run
from kutta.runs.texts import Pairs, Texts
from kutta.translate.translator import Translator


@dataclass(frozen=True)
class Evaluation:
    """The scores of one test set, with their signature."""

    test: str
    sentences: int
    scores: list[Score]
    hypotheses: Path | None  # a language model has none
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"hypotheses": self.hypotheses and str(self.hypotheses)}


@dataclass(frozen=True)
class EvalSet:
    """A test set: its name, its sentence pairs, and its raw references if there are any."""

    name: str
    pairs: Pairs
    raw: list[str] | None

    def references(self, data: DataConfig) -> list[str]:
        """Its references in the form of hypotheses."""
        return reference_texts([target for _, target in self.pairs], data)


def eval_sets(run: Run, tests: Sequence[str] = (), data_dir: str | None = None) -> list[EvalSet]:
    """Read test sets, by default those of the config, from `data_dir` if given.

    All are read before the first is translated.
    """
    names = tests or run.config.data.test
    if not names:
        raise InputError("There is no test set; give one, or list them as data.test in the config.")
    texts = texts_of(run, data_dir)
    pairs_of = {name: texts.test(name) for name in names}
    return [
        EvalSet(name, pairs, texts.raw_references(name, len(pairs)))
        for name, pairs in pairs_of.items()
    ]


def evaluate_set(
    run: Run,
    translator: Translator,
    test: EvalSet,
    on_lines: Callable[[int], None] | None = None,
    **search: Unpack[SearchOptions],
) -> Evaluation:
    """Translate a test set, keep the translations in the run, and score them."""
    decode, data = translator.config.changed(**search), run.config.data
    found = translator.translate([source for source, _ in test.pairs], on_lines=on_lines, **search)
    path = run.outputs("hypotheses") / f"{Path(test.name).name}.{data.target}"
    write_text(path, "".join(line + "\n" for line in found))
    scores = score_texts(found, test.references(data), data, test.raw)
    signature = f"{run.signature}|{_search_signature(decode)}"
    return Evaluation(test.name, len(test.pairs), scores, path, signature)


def texts_of(run: Run, data_dir: str | None) -> Texts:
    """The text of a run, or of another folder."""
    if data_dir is None:
        return run.texts
    return Texts(None, run.config.data.model_copy(update={"dir": data_dir}))


def reference_texts(lines: Sequence[str], data: DataConfig) -> list[str]:
    """References in the form of hypotheses: BPE pieces of split text are joined to words."""
    return [join_pieces(line) for line in lines] if data.tokenizer == "split" else list(lines)


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


def _search_signature(decode: DecodeConfig) -> str:
    """Beam, length penalty, and every other search option that is not the default."""
    settings = DecodeConfig.model_fields
    used = {name: getattr(decode, name) for name in SearchOptions.__annotations__}
    always = f"beam:{used.pop('beam')}|penalty:{used.pop('length_penalty'):g}"
    unusual = (f"{name}:{used[name]}" for name in used if used[name] != settings[name].default)
    return "|".join([always, *unusual])
