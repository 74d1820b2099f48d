"""Numerical methods, free of any knowledge about language.

Methods and kinds of gamma are data; the solvers load torch when one is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kutta.ode.gamma import GAMMAS, Gamma
from kutta.ode.methods import METHODS, Method, tableau_of
from kutta.ode.tableau import TABLEAUX, ButcherTableau, measured_order, order_conditions

if TYPE_CHECKING:
    from kutta.ode.solver import (
        DLCL,
        Leapfrog,
        Multistep,
        PolyNet,
        PredictorCorrector,
        RungeKutta,
        Solver,
        make_solver,
    )

__all__ = [
    "DLCL",
    "GAMMAS",
    "METHODS",
    "TABLEAUX",
    "ButcherTableau",
    "Gamma",
    "Leapfrog",
    "Method",
    "Multistep",
    "PolyNet",
    "PredictorCorrector",
    "RungeKutta",
    "Solver",
    "make_solver",
    "measured_order",
    "order_conditions",
    "tableau_of",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kutta.ode' has no attribute {name!r}")
    return getattr(import_module("kutta.ode.solver"), name)
