"""Sampling from a language model: random continuations of prompts."""

from pathlib import Path
from typing import TYPE_CHECKING, Self

from kutta.config import DecodeConfig, Sampling
from kutta.data.tokenizer import UNK, Tokenizer
from kutta.errors import InputError, not_installed
from kutta.runtime import find_exported, open_export
from kutta.translate.exported import ExportedModel, check_device
from kutta.translate.hypothesis import one_line
from kutta.translate.sampling import sample
from kutta.translate.scorer import Continuation, Scorer

if TYPE_CHECKING:
    import torch

    from kutta.model import LanguageModel

AT_ONCE = 64  # texts drawn together


def load_language_model(folder: str | Path) -> "tuple[LanguageModel | ExportedModel, Tokenizer]":
    """The language model of a run, a checkpoint or an export, and its tokenizer."""
    if place := find_exported(folder):
        exported = open_export(place)
        if not exported.is_language_model:
            raise InputError(_translates(folder))
        return ExportedModel(exported), exported.tokenizers.target
    try:
        from kutta.model import LanguageModel
        from kutta.runs import Run
    except ModuleNotFoundError as error:
        raise not_installed(error) from None

    run = Run.load(folder)
    model = run.load_model()
    if not isinstance(model, LanguageModel):
        raise InputError(_translates(folder))
    return model, run.tokenizers.target


def _translates(folder: str | Path) -> str:
    return (
        f"{folder} is a translation model, not a language model; use it with "
        f"`kutta translate {folder}` (and --sample)."
    )


class Writer:
    """Samples text from a language model; a sample depends on seed, prompt and its number."""

    def __init__(
        self,
        model: "LanguageModel | ExportedModel",
        tokenizer: Tokenizer,
        device: "str | torch.device" = "auto",
    ) -> None:
        self.tokenizer = tokenizer
        self.scorer: Scorer
        if isinstance(model, ExportedModel):
            check_device(device)
            self.scorer = model
        else:
            from kutta.translate.pytorch import SingleModel, on_device

            (moved,), _ = on_device([model], device)
            self.scorer = SingleModel(moved.eval())

    @classmethod
    def load(cls, run: str | Path, device: "str | torch.device" = "auto") -> Self:
        """The writer of a run, of one of its checkpoints, or of an exported model."""
        return cls(*load_language_model(run), device)

    def write(
        self,
        prompt: str = "",
        count: int = 1,
        sampling: Sampling | None = None,
        max_length: int = 100,
    ) -> list[str]:
        """`count` texts that start with `prompt`, with at most `max_length` further tokens each."""
        sampling = sampling or Sampling()
        for name, value in (("count", count), ("max_length", max_length)):
            if value < 1:
                raise InputError(f"{name} = {value} is not valid; it must be at least 1.")
        ids = self.tokenizer.encode(prompt)
        if UNK in ids:
            word = next(w for w in prompt.split() if UNK in self.tokenizer.encode(w))
            raise InputError(
                f"The prompt has the unknown word {word!r}; use only words of the model's "
                "vocabulary (vocab.txt in the run)."
            )
        decode, texts = DecodeConfig(max_length=max_length), list[str]()
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            scorer, prompts = Continuation(self.scorer), [ids] * len(numbers)
            drawn = sample(scorer, prompts, sampling, decode, numbers)
            texts += [one_line([*ids, *hypothesis.tokens], self.tokenizer) for hypothesis in drawn]
        return texts
