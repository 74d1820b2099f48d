"""The methods and the kinds of gamma as tables for people, made from their entries."""

from kutta.ode.gamma import GAMMAS
from kutta.ode.methods import CUSTOM, METHODS, OTHER_METHODS
from kutta.ode.tableau import TABLEAUX

Row = tuple[str, ...]


def method_rows() -> list[Row]:
    """One row per method: name, what it is, order, evaluations of F, weights."""
    rows: list[Row] = [
        (name, t.title, str(t.order), str(t.stages), ", ".join(map(str, t.b)))
        for name, t in TABLEAUX.items()
    ]
    rows += [
        (name, method.title, "-", str(method.build(0).evaluations), "-")
        for name, method in OTHER_METHODS.items()
    ]
    return [*rows, (CUSTOM, METHODS[CUSTOM].title, "computed", "its stages", "its b")]


def method_table(markdown: bool = False) -> str:
    """The methods as text, or as Markdown for the README."""
    head = ("name", "method", "order", "evaluations of F", "weights of the stages")
    return _table(head, method_rows(), markdown)


def gamma_table(markdown: bool = False) -> str:
    """The kinds of gamma as text, or as Markdown for the README."""
    head = ("gamma", "weights of the stages F_1 ... F_s", "what it is")
    return _table(head, [(name, k.formula, k.title) for name, k in GAMMAS.items()], markdown)


def _table(head: Row, rows: list[Row], markdown: bool) -> str:
    """Aligned columns; in Markdown the first column is set as code."""
    if markdown:
        coded = [(f"`{name}`", *cells) for name, *cells in rows]
        lines = ["| " + " | ".join(row) + " |" for row in (head, *coded)]
        return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    )
