"""What a search asks of a model: log-probabilities of the next token, for a batch of rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from kutta.model import DecoderState, TranslationModel


class ScorerState(Protocol):
    """What a scorer carries from one position to the next, for a batch of rows."""

    def select(self, rows: Tensor, same_sentences: bool = False) -> None:
        """Keep or reorder rows (B',). `same_sentences`: each row still reads its own source."""
        ...


State = TypeVar("State", bound=ScorerState)


class Scorer(Protocol[State]):
    """Gives the next token's log-probabilities; the search knows nothing else of a model."""

    def start(self, source: Tensor) -> State:
        """Read the source ids (B, S), right-padded."""
        ...

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """Feed tokens (B,); return log-probabilities (B, V), which the caller may overwrite."""
        ...


@dataclass(frozen=True)
class SingleModel:
    """The log-probabilities of one model."""

    model: TranslationModel

    def start(self, source: Tensor) -> DecoderState:
        return self.model.start(self.model.encode(source))

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        return self.model.step(tokens, state).float().log_softmax(dim=-1)


@dataclass
class EnsembleState:
    """The states of all members."""

    members: list[DecoderState]

    def select(self, rows: Tensor, same_sentences: bool = False) -> None:
        for state in self.members:
            state.select(rows, same_sentences)


@dataclass(frozen=True)
class Ensemble:
    """The average of the probabilities of several models over the same vocabulary."""

    models: Sequence[TranslationModel]

    def start(self, source: Tensor) -> EnsembleState:
        return EnsembleState([SingleModel(model).start(source) for model in self.models])

    def step(self, tokens: Tensor, state: EnsembleState) -> Tensor:
        members = zip(self.models, state.members, strict=True)
        each = torch.stack([SingleModel(model).step(tokens, own) for model, own in members])
        return each.logsumexp(dim=0) - math.log(len(self.models))


def scorer_of(models: Sequence[TranslationModel]) -> Scorer[Any]:
    """The scorer of one model, or of the average of several."""
    return SingleModel(models[0]) if len(models) == 1 else Ensemble(models)
