"""The methods as a table for people, generated from the data that the solvers use."""

from fractions import Fraction

from kutta.ode.solver import OTHER_METHODS, make_solver
from kutta.ode.tableau import TABLEAUX

_HEAD = ("name", "method", "order", "evaluations of F", "weights of the stages")


def method_rows() -> list[tuple[str, ...]]:
    """One row per method: name, what it is, order, evaluations of F, weights."""
    rows = [
        (name, t.title, str(t.order), str(t.stages), ", ".join(map(_fraction, t.b)))
        for name, t in TABLEAUX.items()
    ]
    rows += [
        (name, title, "-", str(make_solver(name).evaluations), "-")
        for name, (_, title) in OTHER_METHODS.items()
    ]
    return rows


def method_table(markdown: bool = False) -> str:
    """The table as text, or as Markdown for the README."""
    rows = [_HEAD, *method_rows()]
    if markdown:
        lines = ["| " + " | ".join(_code(row) if i else row) + " |" for i, row in enumerate(rows)]
        return "\n".join([lines[0], "|" + "---|" * len(_HEAD), *lines[1:]])
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _code(row: tuple[str, ...]) -> tuple[str, ...]:
    return (f"`{row[0]}`", *row[1:])


def _fraction(value: Fraction) -> str:
    return str(value)
