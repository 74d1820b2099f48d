"""Numerical methods, free of any knowledge about language.

Methods and kinds of gamma are data; the solvers load torch when one is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kutta.ode.gamma import GAMMAS
from kutta.ode.methods import METHODS
from kutta.ode.tableau import TABLEAUX, ButcherTableau, measured_order, order_conditions

__all__ = ["GAMMAS", "METHODS", "TABLEAUX", "ButcherTableau", "measured_order", "order_conditions"]

if TYPE_CHECKING:
    from kutta.ode.solver import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """A name of kutta.ode.solver, such as RungeKutta."""
    return getattr(import_module("kutta.ode.solver"), name)
