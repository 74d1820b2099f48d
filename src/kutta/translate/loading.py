"""Loading the models of runs."""

from collections.abc import Sequence
from pathlib import Path

from kutta.data.tokenizer import Tokenizer
from kutta.errors import InputError
from kutta.model import LanguageModel, TranslationModel
from kutta.runs import Run


def load_translation_models(runs: Sequence[Run]) -> list[TranslationModel]:
    """The models of runs or checkpoints with the same vocabulary."""
    if not runs:
        raise InputError("There is no model to translate with; give at least one run.")
    first, *others = runs
    for run in others:
        if run.path != first.path and run.vocabulary() != first.vocabulary():
            raise InputError(
                f"{run.path} and {first.path} have different vocabularies, so their models cannot "
                "form an ensemble; give runs with the same vocabulary."
            )
    return [_translation_model(run) for run in runs]


def _translation_model(run: Run) -> TranslationModel:
    model = run.load_model()
    if not isinstance(model, TranslationModel):
        raise InputError(
            f"{run.path} is a language model and cannot translate; sample from it with "
            f"`kutta sample {run.path}`, or give a run with a source language."
        )
    return model


def load_language_model(folder: str | Path) -> tuple[LanguageModel, Tokenizer]:
    """The language model of a run or a checkpoint, and its tokenizer."""
    run = Run.load(folder)
    model = run.load_model()
    if not isinstance(model, LanguageModel):
        raise InputError(
            f"{folder} is a translation model, not a language model; use it with "
            f"`kutta translate {folder}` (and --sample)."
        )
    return model, run.tokenizers.target
