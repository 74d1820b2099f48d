"""The subject of an analysis: a trained run, and real sentences."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kutta.config import Config
from kutta.data.batches import Batch, batches_in_order, collate
from kutta.data.tokenizer import Ids, Pair, Tokenizers
from kutta.errors import InputError
from kutta.metrics.texts import reference_texts
from kutta.model import TextModel
from kutta.runs import Run, choose_device
from kutta.translate.evaluate import texts_of

# Shows the progress of a measurement: takes the items and a title, and yields the same items.
Track = Callable[[Sequence[Batch], str], Iterable[Batch]]


@dataclass(frozen=True)
class Subject:
    """A trained model with its settings, and encoded sentence pairs with their references."""

    run: Run
    model: TextModel
    device: torch.device
    text: str
    pairs: Sequence[Pair]
    references: Sequence[str]

    @property
    def config(self) -> Config:
        return self.run.config

    @property
    def tokenizers(self) -> Tokenizers:
        return self.run.tokenizers

    def facts(self) -> dict[str, Any]:
        """Everything that the numbers of an analysis depend on."""
        sources, targets = zip(*self.pairs, strict=True)
        return {
            "run": self.run.folder.resolve().name,
            "signature": self.run.signature,
            "method": self.config.model.solver,
            "gamma": self.config.model.gamma,
            "field": self.config.model.field,
            "text": self.text,
            "sentences": len(self.pairs),
            "source_tokens": 0 if self.config.language_model else sum(map(_tokens, sources)),
            "target_tokens": sum(map(_tokens, targets)),
        }

    def one_by_one(self) -> list[Batch]:
        """A batch for each sentence, so that nothing is padded."""
        return [collate([pair]).to(self.device) for pair in self.pairs]

    def batches(self) -> list[tuple[list[int], Batch]]:
        """Batches of sentences of similar length, with their numbers."""
        longest = max(len(side) for pair in self.pairs for side in pair) + 1
        tokens = max(longest, self.config.train.batch_tokens)
        return [
            ([int(i) for i in numbers], batch.to(self.device))
            for numbers, batch in batches_in_order(self.pairs, tokens)
        ]


def load_subject(
    run: Path, sentences: int, test: str | None, data_dir: str | None, device: str
) -> Subject:
    """A run or a checkpoint, with sentences of its validation store, or of a test set of text."""
    loaded, chosen = Run.load(run), choose_device(device)
    if test is None and data_dir is None:
        pairs, references, text = *_stored(loaded, sentences), "valid (store)"
    else:
        text = test or loaded.config.data.valid
        pairs, references = _read(loaded, text, data_dir, sentences)
    model = loaded.load_model().to(chosen)
    return Subject(loaded, model, chosen, text, pairs, references)


def _tokens(ids: Ids) -> int:
    return len(ids) + 1  # and the end mark


def _stored(run: Run, count: int) -> tuple[list[Pair], list[str]]:
    """Pairs of the prepared validation set; their references are decoded from the ids."""
    if not run.has_valid_store:
        raise InputError(
            f"There is no validation store in {run.path}; give a test set with --test, and its "
            "folder with --data-dir."
        )
    store = run.valid_store()
    if not len(store):
        raise InputError(
            f"The validation store of {run.path} is empty; give a test set with --test."
        )
    pairs: list[Pair] = list(store.gather(_spread(len(store), count)))
    return pairs, [run.tokenizers.target.decode(target) for _, target in pairs]


def _read(run: Run, name: str, data_dir: str | None, count: int) -> tuple[list[Pair], list[str]]:
    """Pairs of a corpus of text, truncated as in training."""
    data, tokenizers = run.config.data, run.tokenizers
    lines = texts_of(run, data_dir).test(name)
    lines = [lines[i] for i in _spread(len(lines), count)]
    pairs: list[Pair] = [
        (
            tokenizers.source.encode(source)[: data.max_source or None],
            tokenizers.target.encode(target),
        )
        for source, target in lines
    ]
    return pairs, reference_texts([target for _, target in lines], data)


def _spread(available: int, count: int) -> list[int]:
    """`count` numbers spread evenly over those available."""
    chosen = np.linspace(0, available - 1, min(count, available)).round()
    return [int(number) for number in chosen]
