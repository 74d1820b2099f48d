"""The interface between search and models: log-probabilities of the next token for a batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from kutta.data.tokenizer import BOS
from kutta.model import DecoderState, LanguageModel, TranslationModel


class ScorerState(Protocol):
    """The decoding state of a batch of rows."""

    def select(self, rows: Tensor, same_sentences: bool = False) -> None:
        """Keep or reorder rows (B',). `same_sentences`: each row still reads its own source."""


State = TypeVar("State", bound=ScorerState)


class Scorer(Protocol[State]):
    """Gives the log-probabilities of the next token; all that the search knows of a model."""

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


@dataclass
class ContinuationState:
    """The state of a continued text: `held` (B,) is the last token of the prompt, not yet fed."""

    decoder: DecoderState
    held: Tensor | None

    def select(self, rows: Tensor, same_sentences: bool = False) -> None:
        self.decoder.select(rows, same_sentences)
        if self.held is not None:
            self.held = self.held.index_select(0, rows)


@dataclass(frozen=True)
class Continuation:
    """The log-probabilities of a language model that continues prompts (B, P) of one length."""

    model: LanguageModel

    def start(self, source: Tensor) -> ContinuationState:
        state = self.model.start(len(source))
        text = torch.cat([source.new_full((len(source), 1), BOS), source], dim=1)
        for column in text[:, :-1].unbind(1):
            self.model.step(column, state)
        return ContinuationState(state, text[:, -1])

    def step(self, tokens: Tensor, state: ContinuationState) -> Tensor:
        # A search starts by feeding BOS; a continuation starts with the last token of its prompt.
        if state.held is not None:
            tokens, state.held = state.held, None
        return self.model.step(tokens, state.decoder).float().log_softmax(dim=-1)


def scorer_of(models: Sequence[TranslationModel]) -> Scorer[Any]:
    """The scorer of one model, or of an ensemble."""
    return SingleModel(models[0]) if len(models) == 1 else Ensemble(models)
