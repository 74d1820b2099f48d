"""Models with the same weights and another method."""

from typing import Any

import torch

from kutta.analysis.observe import blocks_of, times_of
from kutta.analysis.subject import Subject
from kutta.config import Config, ModelConfig
from kutta.errors import InputError
from kutta.model import TextModel
from kutta.model.transformer import build_model
from kutta.model.weights import fill, own_tensors
from kutta.ode import GAMMAS, Solver, make_solver
from kutta.ode.error import Substeps
from kutta.ode.methods import CUSTOM

_COMPOSED = "rk2"  # any method but Euler, whose blocks the model takes one sublayer at a time


def not_an_ode(config: ModelConfig) -> str | None:
    """Why the blocks of a model are not steps of dy/dt = F(y); None if they are."""
    if config.norm == "post":
        return "a post-norm layer is LN(y + F(y)), which is not a step of an ODE"
    if config.replicate == "release":
        return "replicate = 'release' makes F the layer's whole output, y included"
    methods, own = (config.solver, config.decoder_solver), config.own_tableau()
    several = any(make_solver(method, tableau=own).evaluations > 1 for method in methods)
    if config.stage_parameters == "separate" and several:
        return "stage_parameters = 'separate' gives every stage of a block its own F"
    return None


def with_method(
    subject: Subject, stack: str, method: str, substeps: int = 1, own_time: bool = False
) -> TextModel:
    """The trained model with another method in one stack, with the weights of its tableau.

    With `own_time` each step covers the time of the trained block (`times_of`) instead of 1.
    Learned parameters of a solver are not copied: they belong to the trained method.
    """
    model = _rebuilt(subject, stack, _COMPOSED if method == "euler" else method)
    times = times_of(subject.model) if own_time else {}
    for place, layer, index in blocks_of(model):
        if place.stack != stack or not layer.blocks[index].chosen:
            continue
        solver = make_solver("euler") if method == "euler" else layer.solvers[index]
        assert isinstance(solver, Solver)
        # If Euler was trained one sublayer at a time, there is no block at this place; T was 1.
        time = times.get(place, 1.0)
        divided = substeps > 1 or time != 1.0
        layer.solvers[index] = Substeps(solver, substeps, time) if divided else solver
    return model.eval()


def check_method(subject: Subject, stack: str, method: str) -> None:
    """Reject a method that a stack does not support; only shapes are built, no values."""
    with torch.device("meta"):
        _unfilled(subject, stack, method)


def _rebuilt(subject: Subject, stack: str, method: str) -> TextModel:
    """A model of the changed settings, filled with the trained weights."""
    model = _unfilled(subject, stack, method)
    trained, wanted = own_tensors(subject.model), own_tensors(model)
    fill(model, {name: trained.get(name, wanted[name]) for name in wanted}, str(subject.run.folder))
    return model.to(subject.device)


def _unfilled(subject: Subject, stack: str, method: str) -> TextModel:
    """A model of the changed settings, all of whose weights have been trained."""
    config = _changed(subject, stack, method)
    sizes = len(subject.tokenizers.source), len(subject.tokenizers.target)
    model = build_model(config, *sizes, subject.tokenizers.shared)
    trained = own_tensors(subject.model)
    untrained = [n for n in own_tensors(model) if n not in trained and ".solvers." not in n]
    if untrained:
        raise InputError(
            f"{subject.run.folder} has no weights for {untrained[0]}, which {method} needs; "
            "choose another method."
        )
    return model


def _changed(subject: Subject, stack: str, method: str) -> ModelConfig:
    """The settings with one stack under another method, as valid ones: what is wrong is said.

    Layers are dropped in training only; some methods refuse to be trained so. A block has one F
    (see not_an_ode), which is evaluated at every stage of the other method.
    """
    values: dict[str, Any] = subject.config.model_dump(mode="json")
    model: dict[str, Any] = values["model"]
    decoder = stack == "decoder" and not subject.config.language_model
    this, other = ("decoder_", "") if decoder else ("", "decoder_")
    model |= {f"{this}solver": method, f"{this}gamma": "tableau"}
    model |= {"gamma_start": "ones", "layer_drop": 0.0, "stage_parameters": "shared"}
    model["share_gamma"] &= GAMMAS[model[f"{other}gamma"]].learned
    if CUSTOM not in (model["solver"], model["decoder_solver"]):
        model["tableau"] = None
    return Config.parse(values, where=f"{subject.run.folder} with {method}").model
