"""Scoring continuations with models in torch."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from kutta.data.tokenizer import EOS
from kutta.model import LanguageModel, TextModel, TranslationModel
from kutta.model.attention import Cache, KeyValues, Slots
from kutta.model.field import Context
from kutta.model.stack import LayerState
from kutta.runs import choose_device
from kutta.translate.cached import SOURCE_TOKENS, Cached, Sizes, Step
from kutta.translate.hypothesis import Continuations, Integers
from kutta.translate.keyvalues import ROOM, ROOM_ON_GPU, Array
from kutta.translate.scorer import Ensemble, Scorer

Model = TypeVar("Model", bound=TextModel)

BLOCK = 128  # tokens whose maximum decides whether any of them can be among the best
ROWS = 8  # of logits that are summed at once
MANY_TOKENS = 1 << 16  # of sources that are encoded together on a GPU


@dataclass(frozen=True)
class SingleModel:
    """The log-probabilities of one model."""

    model: TextModel

    @property
    def vocabulary(self) -> int:
        return len(self.model.output_weight)

    def start(self, beam: int) -> "_Decoding":
        return _Decoding(self.model, beam)


def on_device(
    models: Sequence[Model], device: str | torch.device
) -> tuple[list[Model], torch.device]:
    """The models on this device, and the device."""
    chosen = choose_device(device)
    return [model.to(chosen) for model in models], chosen


def scorer_of(models: Sequence[TextModel]) -> Scorer:
    """The scorer of one model, or of an ensemble."""
    scorers = [SingleModel(model) for model in models]
    return scorers[0] if len(scorers) == 1 else Ensemble(scorers)


class _Decoding(Cached):
    """Decoding with a model, on its device."""

    def __init__(self, model: TextModel, beam: int) -> None:
        self.model, self.device = model, model.output_weight.device
        limits = (SOURCE_TOKENS, ROOM) if self.device.type == "cpu" else (MANY_TOKENS, ROOM_ON_GPU)
        super().__init__(beam, sizes_of(model), self._zeros, *limits)
        self.logits = model.output_weight.new_empty(0)

    def _zeros(self, shape: tuple[int, ...]) -> Tensor:
        """Zeros that may be changed in any mode of torch."""
        weight = self.model.output_weight
        with torch.inference_mode(False):
            if self.device.type != "cpu":
                return weight.new_zeros(shape)
            # Memory of numpy is not provided before it is written to, that of torch is.
            return torch.from_numpy(np.zeros(shape, np.float32)).to(weight.dtype)

    @torch.inference_mode()
    def _read(self, source: Integers) -> list[Array]:
        assert isinstance(self.model, TranslationModel)
        with _evaluating(self.model):
            states = self.model.encode(torch.from_numpy(source).to(self.device)).states
            layers = self.model.decoder.each_layer()
            projected = [kv for layer in layers for kv in layer.projected(states)]
        orders = (1, 2, 3, 0), (1, 2, 0, 3)
        return [
            x.permute(order)
            for kv in projected
            for x, order in zip((kv.keys, kv.values), orders, strict=True)
        ]

    @torch.inference_mode()
    def _run(self, step: Step) -> Continuations:
        layers, context = (
            self._layers(),
            Context(
                bias=self._tensor(step.bias),
                offsets=None if step.offsets is None else self._tensor(step.offsets),
                memory_bias=None if step.memory_bias is None else self._tensor(step.memory_bias),
            ),
        )
        tokens, positions = self._tensor(step.tokens), self._tensor(step.positions)
        with _evaluating(self.model):
            hidden = self.model.extend(tokens, positions, context, layers)
        return best_continuations(self._logits(hidden), step.count)

    def _logits(self, hidden: Tensor) -> Tensor:
        """Hidden states (K, B, d) -> logits (B * K, V)."""
        return self.model.project(hidden.transpose(0, 1).flatten(0, 1)).float()

    def _tensor(self, array: Any) -> Tensor:
        tensor = torch.from_numpy(array).to(self.device)
        return tensor.to(self.model.output_weight.dtype) if tensor.is_floating_point() else tensor

    def _layers(self) -> list[LayerState]:
        """The caches and the memories as the layers of the decoder take them."""
        caches, memories = iter(self.caches.arrays), iter(self.memories.arrays)
        states: list[LayerState] = []
        for layer in self.model.decoder.each_layer():
            crosses = len(layer.sublayers("cross")) if self.memories.arrays else 0
            read: list[KeyValues] = [
                Slots(next(memories).transpose(2, 3), next(memories)) for _ in range(crosses)
            ]
            used = self.caches.used
            kept: list[KeyValues] = [
                Cache(next(caches), next(caches), used) for _ in range(layer.evaluations)
            ]
            states.append(LayerState(read, kept))
        return states


def sizes_of(model: TextModel) -> Sizes:
    """What decoding with a model keeps."""
    layers, settings = list(model.decoder.each_layer()), model.decoder.shape.settings
    crosses = 0 if isinstance(model, LanguageModel) else 1
    return Sizes(
        caches=sum(layer.evaluations for layer in layers),
        memories=crosses and sum(len(layer.sublayers("cross")) for layer in layers),
        heads=settings.heads,
        width=settings.d_model // settings.heads,
        clip=settings.relative_positions,
    )


def best_continuations(logits: Tensor, count: int) -> Continuations:
    """The `count` best of logits (R, V), as log-probabilities."""
    R, V = logits.shape
    if count >= V:
        values = logits.log_softmax(dim=1)
        ids = torch.arange(V, device=logits.device).expand(R, V)
        return _continuations(values, ids, values[:, EOS])
    # A few rows at a time, so that what is between stays in the processor's cache.
    rows = cast(tuple[Tensor, ...], logits.split(ROWS))
    parts = [part.logsumexp(dim=1, keepdim=True) for part in rows]
    total = torch.cat(parts)
    values, ids = highest(logits, count)
    return _continuations(values - total, ids, logits[:, EOS] - total[:, 0])


def _continuations(*parts: Tensor) -> Continuations:
    return Continuations(*(part.cpu().numpy() for part in parts))


def highest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest values of each row (R, N) and their indices; of equal ones the first.

    Only the `count` blocks with the highest maxima can have them.
    """
    N = values.shape[1]
    whole = N // BLOCK * BLOCK
    if count * BLOCK >= whole:
        return _highest(values, count)
    blocks = values[:, :whole].reshape(len(values), -1, BLOCK)
    maxima = [blocks.amax(dim=2)] + ([values[:, whole:].amax(1, keepdim=True)] if whole < N else [])
    chosen = _highest(torch.cat(maxima, dim=1), count)[1].sort(dim=1).values
    where = (chosen[:, :, None] * BLOCK + torch.arange(BLOCK, device=values.device)).flatten(1)
    inside = values.gather(1, where.clamp(max=N - 1)).masked_fill_(where >= N, -torch.inf)
    top, places = _highest(inside, count)
    return top, where.gather(1, places).clamp_(max=N - 1)


def _highest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The same, looking at all values. topk does not define which of equal ones it returns."""
    more = min(count + 1, values.shape[1])
    top, where = values.topk(more, dim=1)
    tied = (top[:, 1:] == top[:, :-1]) & top[:, 1:].isfinite()
    rows = tied.any(dim=1)
    if rows.any():
        ranked, order = values[rows].sort(dim=1, descending=True, stable=True)
        top[rows], where[rows] = ranked[:, :more], order[:, :more]
    return top[:, :count], where[:, :count]


@contextmanager
def _evaluating(model: TextModel) -> Generator[None]:
    """Switch a model to evaluation mode, and restore its mode afterwards."""
    training = model.training
    try:
        if training:
            model.eval()
        yield
    finally:
        if training:
            model.train()
