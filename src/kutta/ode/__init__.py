"""Numerical methods, free of any knowledge about language."""

from kutta.ode.gamma import Gamma
from kutta.ode.solver import (
    DLCL,
    HISTORY_METHODS,
    METHODS,
    Leapfrog,
    Multistep,
    PolyNet,
    PredictorCorrector,
    RungeKutta,
    Solver,
    make_solver,
    stages_of,
    tableau_of,
)
from kutta.ode.tableau import TABLEAUX, ButcherTableau, measured_order, order_conditions

__all__ = [
    "DLCL",
    "HISTORY_METHODS",
    "METHODS",
    "TABLEAUX",
    "ButcherTableau",
    "Gamma",
    "Leapfrog",
    "Multistep",
    "PolyNet",
    "PredictorCorrector",
    "RungeKutta",
    "Solver",
    "make_solver",
    "measured_order",
    "order_conditions",
    "stages_of",
    "tableau_of",
]
