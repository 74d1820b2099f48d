"""The same weights run with another method or step size: quality against cost."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from kutta.analysis.observe import stacks_of, times_of
from kutta.analysis.subject import Subject, Track
from kutta.analysis.variants import check_method, with_method
from kutta.data.batches import Batch
from kutta.data.tokenizer import PAD
from kutta.errors import InputError
from kutta.metrics.texts import valid_score
from kutta.model import Stack, TextModel, TranslationModel
from kutta.model.arithmetic import cost_of
from kutta.ode.methods import METHODS as ALL_METHODS
from kutta.training.objective import token_loss
from kutta.translate.pytorch import scorer_of
from kutta.translate.search import beam_search

METHODS = ("euler", "rk2", "rk4")
SUBSTEPS = (1, 2, 4)
_REPEATS = 3  # the fastest counts, because the machine may be shared


@dataclass(frozen=True)
class Variant:
    """One way to run one stack, the others as trained."""

    stack: str
    method: str
    substeps: int = 1
    own_time: bool = False


TRAINED = Variant("", "trained", own_time=True)  # every stack as it was trained


def check_inference(subject: Subject, methods: Sequence[str], bleu: bool) -> None:
    """Reject what cannot be measured before minutes are spent on the rest."""
    if bleu and not isinstance(subject.model, TranslationModel):
        raise InputError("A language model has no BLEU, because it cannot translate; drop --bleu.")
    for stack in stacks_of(subject.model):
        for method in methods:
            check_method(subject, stack, method)


def measure_inference(
    subject: Subject, track: Track, methods: Sequence[str] = METHODS, bleu: bool = False
) -> dict[str, Any]:
    """Perplexity (and BLEU) of every variant with its evaluations of F, arithmetic and seconds."""
    check_inference(subject, methods, bleu)
    batches = [batch for _, batch in subject.batches()]
    rows: list[dict[str, Any]] = []
    for variant in (TRAINED, *_variants(subject, methods)):
        model = subject.model if variant == TRAINED else _build(subject, variant)
        title = f"inference: {variant.stack} {variant.method} x {variant.substeps}"
        row = _described(subject, variant, model) | _teacher_forced(model, batches, track, title)
        if bleu and isinstance(model, TranslationModel):
            row["bleu"] = _bleu(subject, model)
        rows.append(row)
    return {**subject.facts(), "rows": rows}


def _variants(subject: Subject, methods: Sequence[str]) -> Iterator[Variant]:
    """Each stack under each method and number of substeps.

    Where the trained blocks do not cover the time 1, the methods run over the time they do cover
    and, in a single step, over 1 too.
    """
    times = times_of(subject.model)
    for stack in stacks_of(subject.model):
        own = any(abs(t - 1) > 1e-6 for place, t in times.items() if place.stack == stack)
        for method in methods:
            if ALL_METHODS[method].looks_back:  # so all its steps are of one length
                yield Variant(stack, method)
                continue
            yield from (Variant(stack, method, n, own) for n in SUBSTEPS)
            if own:
                yield Variant(stack, method)


def _build(subject: Subject, variant: Variant) -> TextModel:
    return with_method(subject, variant.stack, variant.method, variant.substeps, variant.own_time)


def _described(subject: Subject, variant: Variant, model: TextModel) -> dict[str, Any]:
    """A variant and its cost in multiply-adds."""
    facts, cost = subject.facts(), cost_of(model)
    return {
        "stack": variant.stack,
        "method": variant.method,
        "substeps": variant.substeps,
        "time": "own" if variant.own_time else "1",
        "evaluations": {name: _evaluations(stack) for name, stack in stacks_of(model).items()},
        "multiply_adds": cost.per_source_token * facts["source_tokens"]
        + cost.per_target_token * facts["target_tokens"],
    }


def _evaluations(stack: Stack) -> float:
    """How often each sublayer of a stack is evaluated, on average: 1 for Euler, 4 for RK4."""
    steps = [step for layer in stack.each_layer() for step in layer.steps()]
    used = sum(solver.evaluations * len(block.parts) for block, solver in steps)
    return used / sum(len(block.parts) for block, _ in steps)


@torch.inference_mode()
def _teacher_forced(
    model: TextModel, batches: list[Batch], track: Track, title: str
) -> dict[str, float]:
    """Loss per target token, perplexity, and the seconds for one pass over all batches."""
    model.eval()
    nll, seconds = 0.0, 0.0
    for batch in track(batches, title):
        timed: list[float] = []
        part = 0.0
        for _ in range(_REPEATS):
            started = time.perf_counter()
            hidden = model(batch.source, batch.target_in)
            loss = token_loss(hidden, model.output_weight, batch.target_out, model.pad, 0.0)
            part = float(loss.nll)  # waits for the device
            timed.append(time.perf_counter() - started)
        nll, seconds = nll + part, seconds + min(timed)
    nll /= sum(batch.tokens for batch in batches)
    return {"nll": nll, "perplexity": math.exp(min(nll, 50.0)), "seconds": seconds}


def _bleu(subject: Subject, model: TranslationModel) -> float:
    """BLEU of greedy translations, made and scored as training does for its validations.

    They start from the ids, already truncated to max_source: text decoded from the store would
    have lost its unknown tokens.
    """
    greedy = subject.config.decode.changed(beam=1)
    found = [""] * len(subject.pairs)
    for numbers, batch in subject.batches():
        rows = cast(list[list[int]], batch.source.tolist())
        sources = [[id for id in row if id != PAD] for row in rows]
        best = beam_search(scorer_of([model]), sources, greedy)
        for number, hypotheses in zip(numbers, best, strict=True):
            text = subject.tokenizers.target.decode(hypotheses[0].tokens)
            if len(subject.pairs[number][0]):  # an empty line has an empty translation
                found[number] = " ".join(text.splitlines()).strip()
    return valid_score(found, subject.references, subject.config.data).value
