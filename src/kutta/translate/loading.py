"""From the folder of a run to its model, and clear words where that does not work."""

from collections.abc import Sequence
from pathlib import Path

import torch

from kutta.config import Config, DecodeConfig
from kutta.data.tokenizer import Tokenizer, Tokenizers
from kutta.errors import InputError
from kutta.model import LanguageModel, TextModel, TranslationModel
from kutta.model.build import build_model
from kutta.model.weights import load_weights, read_shapes

WEIGHTS = "model.safetensors"


def choose_device(name: str | torch.device) -> torch.device:
    """The device of this name; "auto" is the first GPU where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"The device {str(name)!r} cannot be used ({reason}); take auto or cpu."
        ) from error
    return device


def load_models(
    folders: Sequence[Path],
) -> tuple[list[TranslationModel], Tokenizers, DecodeConfig]:
    """The models of runs or checkpoints over one vocabulary; the decode settings of the first."""
    if not folders:
        raise InputError("There is no model to translate with; give at least one run.")
    homes = [home_of(folder) for folder in folders]
    for home in homes[1:]:
        if home != homes[0] and vocabulary_of(home) != vocabulary_of(homes[0]):
            raise InputError(
                f"{home} and {homes[0]} have different vocabularies, so their models cannot "
                "translate together; give runs that were prepared with the same vocabulary."
            )
    tokenizers = Tokenizers.load(homes[0])
    models: list[TranslationModel] = []
    for folder, home in zip(folders, homes, strict=True):
        model = _load(folder, home, tokenizers)
        if not isinstance(model, TranslationModel):
            raise InputError(
                f"{folder} is a language model and does not translate; write text with it by "
                f"`kutta sample {folder}`, or give a run with a source language."
            )
        models.append(model)
    return models, tokenizers, Config.load(homes[0] / "config.json").decode


def load_language_model(folder: Path) -> tuple[LanguageModel, Tokenizer]:
    """The language model of a run or a checkpoint, and its tokenizer."""
    home = home_of(folder)
    tokenizers = Tokenizers.load(home)
    model = _load(folder, home, tokenizers)
    if not isinstance(model, LanguageModel):
        raise InputError(
            f"{folder} is a translation model, not a language model; use it with "
            f"`kutta translate {folder}`, which has --sample too."
        )
    return model, tokenizers.target


def home_of(folder: Path) -> Path:
    """The run of a folder: itself, or two levels up from one of its checkpoints."""
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}; give the folder of a run.")
    for home in (folder, folder.absolute().parent.parent):
        if (home / "config.json").is_file():
            return home
    raise InputError(
        f"{folder} is not the folder of a run (it has no config.json); give the folder that "
        "`run` names in the config, or one of its checkpoints."
    )


def vocabulary_of(home: Path) -> dict[str, bytes]:
    """The contents of the tokenizer files of a run, by name."""
    files = [*home.glob("tokenizer*.model"), *home.glob("vocab*.txt")]
    return {file.name: file.read_bytes() for file in files}


def _load(folder: Path, home: Path, tokenizers: Tokenizers) -> TextModel:
    """The model in `folder`, a run or a checkpoint of the run `home`."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise InputError(
            f"There is no {WEIGHTS} in {folder} yet: its training has not finished; run "
            f"`kutta train` with its config to go on, or give a folder of {home}/checkpoints."
        )
    shapes = read_shapes(path)
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        rows = shapes.get(f"{side}_embedding.tokens.weight", (len(tokenizer),))[0]
        if rows != len(tokenizer):
            raise InputError(
                f"The model {path} was trained with {rows:,} {side} tokens but the vocabulary in "
                f"{home} has {len(tokenizer):,}; put back the tokenizer it was trained with."
            )
    config = Config.load(home / "config.json").model
    sizes = len(tokenizers.source), len(tokenizers.target)
    model = build_model(config, *sizes, tokenizers.shared)
    load_weights(model, path)
    return model.eval()
