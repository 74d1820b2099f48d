"""How much of the input token is left in the states: the coefficient of its embedding in y.

A position's input is e + p: the embedding of its token, scaled, and the position. With y the state
of the same position somewhere in the stack,

    coefficient = <y, e> / <e, e>,      cosine = <y, e> / (|y| |e|),

so y = coefficient x e + a part orthogonal to e. Trained embeddings have common directions; their
contribution is `others`, the mean coefficient of the other tokens of the text, and what is specific
to the own token is `excess` = coefficient - others.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kutta.analysis.observe import Place, Seen, blocks_of, observing, stacks_of
from kutta.analysis.subject import Subject, Track
from kutta.data.batches import Batch
from kutta.model import TextModel, TranslationModel
from kutta.model.decoding import Embedding

_MEASURES = ("coefficient", "others", "excess", "cosine")


@dataclass(frozen=True)
class Inputs:
    """The input of one stack: its embedding, the count of each token (V,), and the sum of
    e / <e, e> (d,) over all positions."""

    embedding: Embedding
    counts: Tensor
    duals: Tensor

    def measures(self, y: Tensor, ids: Tensor) -> list[Tensor]:
        """The _MEASURES of states y (T, d) over tokens ids (T,), each (T,)."""
        y, e = y.double(), _tokens(self.embedding, ids)
        dual = _dual(e)
        same = self.counts[ids][:, None]
        of_others = (self.duals - same * dual) / (self.counts.sum() - same)
        own, others = (y * dual).sum(-1), (y * of_others).sum(-1)
        return [own, others, own - others, torch.cosine_similarity(y, e)]


@torch.no_grad()
def measure_embedding(subject: Subject, track: Track) -> dict[str, Any]:
    """How much of the input token is left at the input, after every block and the final norm.

    Medians over all positions, including end marks, and the 10-90% range of the coefficient.
    """
    model, batches = subject.model.eval(), subject.one_by_one()
    inputs = {stack: _inputs(model, stack, batches) for stack in stacks_of(model)}
    found: dict[Place, list[list[Tensor]]] = {}
    for batch in track(batches, "embedding"):
        for place, y in _states(model, batch):
            ids = _ids(batch, place.stack)[0]
            found.setdefault(place, []).append(inputs[place.stack].measures(y[:, 0], ids))
    rows = [_row(place, sentences) for place, sentences in found.items()]
    return {**subject.facts(), "tied": model.output is None, "rows": rows}


def _states(model: TextModel, batch: Batch) -> Iterator[tuple[Place, Tensor]]:
    """The states (T, B, d) of every stack by place: "input", after each block, after the norm.

    The state after a block is the input of the next one, or of the final norm.
    """
    given: dict[str, list[Tensor]] = {name: [] for name in stacks_of(model)}

    def on_step(seen: Seen) -> None:
        given[seen.place.stack].append(seen.y)

    with ExitStack() as hooks, observing(model, on_step):
        for name, stack in stacks_of(model).items():
            hooks.enter_context(stack.norm.register_forward_hook(_keep(given[name])))
        model(batch.source, batch.target_in)
    for name, stack in stacks_of(model).items():
        blocks = [place for place, _, _ in blocks_of(model) if place.stack == name]
        places = [Place(name, 0, "input"), *blocks]
        if not isinstance(stack.norm, nn.Identity):  # post-norm layers end in their own
            places.append(Place(name, len(stack.layers), "norm"))
        yield from zip(places, given[name], strict=False)


def _keep(states: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor], Tensor], None]:
    """A hook that records the input and the output of a module."""

    def note(_: nn.Module, before: tuple[Tensor], after: Tensor) -> None:
        states.extend((*before, after))

    return note


def _inputs(model: TextModel, stack: str, batches: Sequence[Batch]) -> Inputs:
    """The input of a stack over all batches."""
    embedding = model.target_embedding
    if stack == "encoder" and isinstance(model, TranslationModel):
        embedding = model.source_embedding
    ids = torch.cat([_ids(batch, stack).flatten() for batch in batches])
    counts = torch.bincount(ids, minlength=embedding.tokens.num_embeddings)
    return Inputs(embedding, counts, _dual(_tokens(embedding, ids)).sum(0))


def _ids(batch: Batch, stack: str) -> Tensor:
    """The tokens (B, T) that a stack reads."""
    return batch.source if stack == "encoder" else batch.target_in


def _tokens(embedding: Embedding, ids: Tensor) -> Tensor:
    """e (..., d) of ids: scaled as the model does, without positions."""
    return embedding.tokens(ids).double() * embedding.scale


def _dual(e: Tensor) -> Tensor:
    """e / <e, e>, whose product with y is the coefficient of e in y."""
    return e / e.square().sum(-1, keepdim=True)


def _row(place: Place, sentences: list[list[Tensor]]) -> dict[str, Any]:
    of_all = [torch.cat(values).cpu().numpy() for values in zip(*sentences, strict=True)]
    low, high = np.quantile(of_all[0], (0.1, 0.9)).tolist()
    return {
        "stack": place.stack,
        "layer": place.layer,
        "sublayers": place.sublayers,
        "positions": len(of_all[0]),
        **{name: float(np.median(v)) for name, v in zip(_MEASURES, of_all, strict=True)},
        "low": low,
        "high": high,
    }
