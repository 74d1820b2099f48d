"""Evaluating a model on test sets: translate, save the hypotheses, and score them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from kutta.config import DataConfig, DecodeConfig, SearchOptions
from kutta.data.tokenizer import join_pieces
from kutta.errors import InputError
from kutta.files import write_text
from kutta.metrics import (
    Score,
    chrf,
    moses_detokenize,
    moses_rules,
    moses_signature,
    sacre_bleu,
    tokenized_bleu,
)
from kutta.runs import Run
from kutta.runs.texts import Texts
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
        return {
            "test": self.test,
            "sentences": self.sentences,
            "scores": [score.to_dict() for score in self.scores],
            "hypotheses": None if self.hypotheses is None else str(self.hypotheses),
            "signature": self.signature,
        }


def evaluate(
    run: Run,
    translator: Translator,
    tests: Sequence[str] = (),
    data_dir: str | None = None,
    **search: Unpack[SearchOptions],
) -> list[Evaluation]:
    """Score test sets: by default those of the config; from `data_dir` if given."""
    decode, data = translator.config.changed(**search), run.config.data
    texts = texts_of(run, data_dir)
    pairs_of = {name: texts.test(name) for name in test_names(run, tests)}
    raw = {name: texts.raw_references(name, len(pairs)) for name, pairs in pairs_of.items()}
    signature = f"{run.signature}|{_search_signature(decode)}"
    results: list[Evaluation] = []
    for name, pairs in pairs_of.items():
        found = translator.translate([source for source, _ in pairs], **search)
        references = reference_texts([target for _, target in pairs], data)
        path = run.hypotheses / f"{Path(name).name}.{data.target}"
        write_text(path, "".join(line + "\n" for line in found))
        scores = score_texts(found, references, data, raw[name])
        results.append(Evaluation(name, len(pairs), scores, path, signature))
    return results


def texts_of(run: Run, data_dir: str | None) -> Texts:
    """The text of a run, or of another folder."""
    if data_dir is None:
        return run.texts
    return Texts(None, run.config.data.model_copy(update={"dir": data_dir}))


def test_names(run: Run, tests: Sequence[str]) -> Sequence[str]:
    """The given test sets, or those of the config."""
    names = tests or run.config.data.test
    if not names:
        raise InputError("There is no test set; give one, or list them as data.test in the config.")
    return names


def reference_texts(lines: Sequence[str], data: DataConfig) -> list[str]:
    """References in the form of hypotheses: BPE pieces of split text are joined to words."""
    return [join_pieces(line) for line in lines] if data.tokenizer == "split" else list(lines)


def score_texts(
    hypotheses: Sequence[str],
    references: Sequence[str],
    data: DataConfig,
    raw: Sequence[str] | None = None,
) -> list[Score]:
    """Tokenised BLEU, sacreBLEU and chrF.

    sacreBLEU and chrF are for raw text. Translations of split text are detokenised and scored
    against `raw` references; without these, name and signature state that the text was tokenised,
    because such a score is not comparable with sacreBLEU of raw text.
    """
    bleu = _bleu(hypotheses, references, data)
    if data.tokenizer != "split":
        return [bleu, sacre_bleu(hypotheses, references), chrf(hypotheses, references)]
    if raw is None:
        scores = sacre_bleu(hypotheses, references), chrf(hypotheses, references)
        return [bleu, *map(_of_tokenised_text, scores)]
    rules, lower = moses_rules(data.target), data.lowercased
    found = moses_detokenize(hypotheses, rules)
    scores = sacre_bleu(found, raw, lower), chrf(found, raw, lowercase=lower)
    made = f"detok:{moses_signature(rules)}"
    return [bleu, *(replace(one, signature=f"{one.signature}|{made}") for one in scores)]


def tokenised(metric: str) -> str:
    """The name of a metric for raw text that was computed on tokenised text."""
    return f"{metric} (tokenised text)"


def _of_tokenised_text(score: Score) -> Score:
    name, signature = tokenised(score.name), f"{score.signature}|text:tokenised"
    return replace(score, name=name, signature=signature)


def _bleu(hypotheses: Sequence[str], references: Sequence[str], data: DataConfig) -> Score:
    """Tokenised BLEU; raw text is tokenised first."""
    language = None if data.tokenizer == "split" else moses_rules(data.target)
    return tokenized_bleu(
        hypotheses, references, language=language, split_compounds=data.split_compounds
    )


def valid_score(hypotheses: Sequence[str], references: Sequence[str], data: DataConfig) -> Score:
    """The validation score during training: tokenised BLEU of split text, else sacreBLEU."""
    texts = reference_texts(references, data)
    if data.tokenizer == "split" or data.split_compounds:
        return _bleu(hypotheses, texts, data)
    return sacre_bleu(hypotheses, texts)


def _search_signature(decode: DecodeConfig) -> str:
    """Beam, length penalty, and every other search option that is not the default."""
    settings = DecodeConfig.model_fields
    used = {name: getattr(decode, name) for name in SearchOptions.__annotations__}
    always = f"beam:{used.pop('beam')}|penalty:{used.pop('length_penalty'):g}"
    unusual = (f"{name}:{used[name]}" for name in used if used[name] != settings[name].default)
    return "|".join([always, *unusual])
