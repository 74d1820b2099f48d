"""What an analysis looks at: a trained run, and real sentences to put through it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kutta.config import Config, DataConfig
from kutta.data.batches import Batch, PairList, batches_in_order, collate
from kutta.data.store import Store
from kutta.data.tokenizer import Ids, Pair, Tokenizers
from kutta.errors import InputError
from kutta.model import TextModel
from kutta.translate.evaluate import reference_texts, run_signature, test_texts
from kutta.translate.loading import choose_device, home_of, load_language_model, load_models

# Shows how far a long measurement is: the same items, and a word on what is being done.
Track = Callable[[Sequence[Batch], str], Iterable[Batch]]

VALID = Path("store") / "valid.arrow"


@dataclass(frozen=True)
class Subject:
    """A trained model with its settings, and encoded sentence pairs with their references."""

    run: Path
    config: Config
    model: TextModel
    tokenizers: Tokenizers
    device: torch.device
    text: str
    pairs: Sequence[Pair]
    references: Sequence[str]

    def facts(self) -> dict[str, Any]:
        """What every number of an analysis depends on."""
        sources, targets = zip(*self.pairs, strict=True)
        return {
            "run": self.run.resolve().name,
            "signature": run_signature(self.config, self.run),
            "method": self.config.model.solver,
            "gamma": self.config.model.gamma,
            "field": self.config.model.field,
            "text": self.text,
            "sentences": len(self.pairs),
            "source_tokens": 0 if self.config.language_model else sum(map(_tokens, sources)),
            "target_tokens": sum(map(_tokens, targets)),
        }

    def one_by_one(self) -> list[Batch]:
        """Each sentence alone: nothing is padded, and each has a number of its own."""
        return [collate([pair]).to(self.device) for pair in self.pairs]

    def batches(self) -> list[tuple[list[int], Batch]]:
        """Sentences of like length together, each once, with their numbers."""
        longest = max(len(side) for pair in self.pairs for side in pair) + 1
        tokens = max(longest, self.config.train.batch_tokens)
        return [
            ([int(i) for i in numbers], batch.to(self.device))
            for numbers, batch in batches_in_order(PairList(self.pairs), tokens)
        ]


def load_subject(
    run: Path, sentences: int, test: str | None, data_dir: str | None, device: str
) -> Subject:
    """A run or a checkpoint, with sentences of its validation store, or of a test set of text."""
    home = home_of(run)
    config = Config.load(home / "config.json")
    chosen = choose_device(device)
    if config.language_model:
        model, _ = load_language_model(run)
    else:
        model = load_models([run])[0][0]
    tokenizers = Tokenizers.load(home)
    if test is None and data_dir is None:
        pairs, references, text = *_stored(home, tokenizers, sentences), "valid (store)"
    else:
        data = config.data.model_copy(update={"dir": data_dir} if data_dir is not None else {})
        text = test or data.valid
        pairs, references = _read(data, text, tokenizers, sentences)
    return Subject(run, config, model.to(chosen), tokenizers, chosen, text, pairs, references)


def _tokens(ids: Ids) -> int:
    return len(ids) + 1  # and the end mark


def _stored(home: Path, tokenizers: Tokenizers, count: int) -> tuple[list[Pair], list[str]]:
    """Pairs of the prepared validation set; their references are what the ids say."""
    if not (home / VALID).is_file():
        raise InputError(
            f"There is no {VALID} in {home} to take sentences from; name a test set with --test, "
            "and where it is with --data-dir."
        )
    store = Store.open(home / VALID)
    if not len(store):
        raise InputError(f"{home / VALID} has no sentences; name a test set with --test.")
    pairs: list[Pair] = list(store.gather(_spread(len(store), count)))
    return pairs, [tokenizers.target.decode(target) for _, target in pairs]


def _read(
    data: DataConfig, name: str, tokenizers: Tokenizers, count: int
) -> tuple[list[Pair], list[str]]:
    """Pairs of a corpus of text, cut as training cuts them."""
    lines = test_texts(data, [name])[name]
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
    """`count` numbers spread evenly over those available: the same every time."""
    chosen = np.linspace(0, available - 1, min(count, available)).round()
    return [int(number) for number in chosen]
