"""Shapes of small stacks for tests, of settings that need not go together."""

from dataclasses import fields, replace
from typing import Any

from kutta.config import ModelConfig
from kutta.config.model import TableauConfig
from kutta.model import StackShape
from kutta.ode import ButcherTableau

_OWN = {field.name for field in fields(StackShape)}
_SHORT = {"clip": "relative_positions", "placement": "field", "start": "gamma_start"}


def shape_of(d_model: int, ffn: int, heads: int, layers: int, **changes: Any) -> StackShape:
    """A stack of these sizes; other settings have their defaults."""
    sizes = {"d_model": d_model, "ffn": ffn, "heads": heads}
    return changed(StackShape(ModelConfig(), layers), **sizes | changes)


def changed(shape: StackShape, **changes: Any) -> StackShape:
    """The shape with other settings, by the names of StackShape and ModelConfig or by short ones.

    `tableau` is a ButcherTableau or None.
    """
    own = {name: value for name, value in changes.items() if name in _OWN}
    others = {_SHORT.get(name, name): changes[name] for name in changes.keys() - own.keys()}
    assert others.keys() <= ModelConfig.model_fields.keys()
    if isinstance(tableau := others.get("tableau"), ButcherTableau):
        others["tableau"] = TableauConfig(a=[list(row) for row in tableau.a], b=list(tableau.b))
    return replace(shape, settings=shape.settings.model_copy(update=others), **own)
