"""Loading models for the translator: of runs in torch, or exported ones without it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kutta.errors import InputError, not_installed
from kutta.runtime import Exported, find_exported, open_export
from kutta.translate.exported import ExportedModel, on_cpu

if TYPE_CHECKING:
    from kutta.model import TranslationModel
    from kutta.runs import Run


def exports_to_load(given: Sequence[str | Path], device: object) -> list[Path]:
    """The folders of exported models, to be run without torch; none if torch has to run them.

    It has to in an ensemble with a run, and on a GPU. Torch reads the weights of an export as those
    of a run.
    """
    found = [find_exported(name) for name in given]
    folders = [folder for folder in found if folder]
    return folders if len(folders) == len(found) and on_cpu(device) else []


def load_exports(folders: Sequence[Path]) -> tuple[list[ExportedModel], Exported]:
    """The exported models in these folders, and the first of them."""
    found = [open_export(folder) for folder in folders]
    for one in found:
        if one.is_language_model:
            raise InputError(_no_translation(one.path))
        if one.vocabulary() != found[0].vocabulary():
            raise InputError(_other_vocabulary(one.path, found[0].path))
    return [ExportedModel(one) for one in found], found[0]


def load_runs(folders: Sequence[str | Path]) -> "tuple[list[TranslationModel], Run]":
    """The models of runs or checkpoints with the same vocabulary, and the first run."""
    try:
        from kutta.model import TranslationModel
        from kutta.runs import Run
    except ModuleNotFoundError as error:
        raise not_installed(error) from None

    if not folders:
        raise InputError("There is no model to translate with; give at least one run.")
    first, *others = runs = [Run.load(folder) for folder in folders]
    for run in others:
        if run.path != first.path and run.vocabulary() != first.vocabulary():
            raise InputError(_other_vocabulary(run.path, first.path))
    models: list[TranslationModel] = []
    for run in runs:
        model = run.load_model()
        if not isinstance(model, TranslationModel):
            raise InputError(_no_translation(run.path))
        models.append(model)
    return models, first


def _no_translation(path: Path) -> str:
    return (
        f"{path} is a language model and cannot translate; sample from it with "
        f"`kutta sample {path}`, or give a run with a source language."
    )


def _other_vocabulary(path: Path, first: Path) -> str:
    return (
        f"{path} and {first} have different vocabularies, so their models cannot form an "
        "ensemble; give runs with the same vocabulary."
    )
