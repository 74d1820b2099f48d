"""The methods by name, as data that settings can read without loading torch.

A Runge-Kutta method is one entry of TABLEAUX. A method of another kind is a class derived from
Solver, which says how often it evaluates F, and one entry of OTHER_METHODS.
"""

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from kutta.ode.tableau import TABLEAUX, ButcherTableau

if TYPE_CHECKING:
    from kutta.ode.solver import Solver


@dataclass(frozen=True)
class Method:
    """What a name stands for: a Runge-Kutta method's tableau, or the class of another solver.

    A method that `looks_back` to earlier blocks needs every block of the stack to be its own.
    `learns` names the parameters that the class has by itself; gamma may add others.
    """

    title: str
    tableau: ButcherTableau | None = None
    solver: str = ""  # the class, in kutta.ode.solver
    arguments: tuple[Any, ...] = ()  # of the class, before the number of the block
    looks_back: bool = False
    learns: tuple[str, ...] = ()

    def build(self, block: int) -> "Solver":
        """The solver of block number `block`, where the method is not Runge-Kutta."""
        return resolve_name(f"kutta.ode.solver:{self.solver}")(*self.arguments, block)


def _predictor_corrector(predictor: str) -> Method:
    return Method(
        f"predictor-corrector: {predictor.upper()}, then Adams-Moulton",
        solver="PredictorCorrector",
        arguments=(TABLEAUX[predictor],),
        looks_back=True,
        learns=("predictor.alpha", "corrector"),
    )


OTHER_METHODS: dict[str, Method] = {
    "leapfrog": Method("y_{t-1} + 2 F(y)", solver="Leapfrog", looks_back=True),
    "multistep": Method("two-step, k learned", solver="Multistep", looks_back=True, learns=("k",)),
    "dlcl": Method(
        "dynamic linear combination of layers", solver="DLCL", looks_back=True, learns=("weights",)
    ),
    "polynet": Method("y + F(y) + F(F(y))", solver="PolyNet"),
    "pc2": _predictor_corrector("rk2"),
    "pc4": _predictor_corrector("rk4"),
}
CUSTOM = "custom"  # the name of a tableau that the user gives
METHODS: dict[str, Method] = {
    **{name: Method(tableau.title, tableau) for name, tableau in TABLEAUX.items()},
    **OTHER_METHODS,
    CUSTOM: Method("your own tableau, [model.tableau]"),
}


def tableau_of(method: str, own: ButcherTableau | None = None) -> ButcherTableau | None:
    """The tableau of a Runge-Kutta method; None for a method of another kind."""
    return own if method == CUSTOM else METHODS[method].tableau
