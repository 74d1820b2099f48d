"""Gradient norms of every block, and during training."""

import math
from collections import defaultdict
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from kutta.analysis.observe import Place, Seen, blocks_of, observing
from kutta.analysis.subject import Subject, Track
from kutta.model import TextModel
from kutta.training.objective import token_loss


def measure_gradients(subject: Subject, track: Track) -> dict[str, Any]:
    """Gradient norms of every block on real sentences, and of the whole model by step.

    L is the training loss, the smoothed mean per target token over all sentences, without
    dropout. `state` is |dL/dy| at the block's input, `parameters` |dL/dtheta| of its sublayers and
    its solver; shared parameters have the gradient of all layers together.
    """
    model, batches = subject.model.eval(), [batch for _, batch in subject.batches()]
    smoothing = subject.config.train.label_smoothing
    tokens = sum(batch.tokens for batch in batches)
    squares: dict[Place, float] = defaultdict(float)
    loss = 0.0
    model.zero_grad(set_to_none=True)
    for batch in track(batches, "gradients"):
        inputs: list[tuple[Place, Tensor]] = []

        def on_step(seen: Seen, inputs: list[tuple[Place, Tensor]] = inputs) -> None:
            seen.y.retain_grad()
            inputs.append((seen.place, seen.y))

        with observing(model, on_step), torch.enable_grad():
            hidden = model(batch.source, batch.target_in)
            parts = token_loss(hidden, model.output_weight, batch.target_out, model.pad, smoothing)
            (parts.smoothed / tokens).backward()
        loss += float(parts.smoothed.detach()) / tokens
        for place, y in inputs:
            squares[place] += float((y.grad.double() ** 2).sum()) if y.grad is not None else 0.0
    rows = [
        {
            **asdict(place),
            "state": math.sqrt(squares[place]),
            "parameters": norm,
        }
        for place, norm in _parameter_norms(model).items()
    ]
    whole = _norm(list(model.parameters()))
    model.zero_grad(set_to_none=True)
    return {
        **subject.facts(),
        "loss": loss,
        "model": whole,
        "rows": rows,
        "steps": _course(subject),
    }


def _parameter_norms(model: TextModel) -> dict[Place, float]:
    norms: dict[Place, float] = {}
    for place, layer, index in blocks_of(model):
        modules = [part for name in layer.blocks[index].parts for part in layer.sublayers(name)]
        parameters = [p for module in (*modules, layer.solvers[index]) for p in module.parameters()]
        norms[place] = _norm(parameters)
    return norms


def _norm(parameters: list[torch.nn.Parameter]) -> float:
    gradients = [p.grad for p in parameters if p.grad is not None]
    return math.sqrt(sum(float((g.double() ** 2).sum()) for g in gradients))


def _course(subject: Subject) -> list[dict[str, Any]]:
    """The gradient norm of the whole model during training, from the records of the run."""
    return [
        {"step": record["step"], "grad_norm": record["grad_norm"]}
        for record in subject.run.records()
        if record.get("kind") == "train" and record.get("grad_norm") is not None
    ]
