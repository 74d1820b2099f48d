"""The methods and the kinds of gamma as tables for people; methods come from the solvers' data."""

from kutta.ode.solver import CUSTOM, OTHER_METHODS, make_solver
from kutta.ode.tableau import TABLEAUX

Row = tuple[str, ...]

_METHOD_HEAD = ("name", "method", "order", "evaluations of F", "weights of the stages")
_GAMMA_HEAD = ("gamma", "weights of the stages F_1 ... F_s", "what it is")

# gamma -> (the weights, what it is)
GAMMAS: dict[str, tuple[str, str]] = {
    "tableau": ("b_1, ..., b_s", "the method's own"),
    "ones": ("1, ..., 1", "the paper's gamma = 1"),
    "learned": ("gamma_1, ..., gamma_s", "learned scalars, starting at 1 (the paper) or at b"),
    "gated": ("g, 1 - g", "g = sigmoid(W [F_1; F_2] + c), learned; two stages only (ACL 2022)"),
    "ema": ("a (1 - a)^(s-1), ..., a (1 - a), a", "a learned, starting at 0.5 (PCformer)"),
}


def method_rows() -> list[Row]:
    """One row per method: name, what it is, order, evaluations of F, weights."""
    rows: list[Row] = [
        (name, t.title, str(t.order), str(t.stages), ", ".join(map(str, t.b)))
        for name, t in TABLEAUX.items()
    ]
    rows += [
        (name, title, "-", str(make_solver(name).evaluations), "-")
        for name, (_, title) in OTHER_METHODS.items()
    ]
    own = (CUSTOM, "your own tableau, [model.tableau]", "computed", "its stages", "its b")
    return [*rows, own]


def method_table(markdown: bool = False) -> str:
    """The methods as text, or as Markdown for the README."""
    return _table(_METHOD_HEAD, method_rows(), markdown)


def gamma_table(markdown: bool = False) -> str:
    """The kinds of gamma as text, or as Markdown for the README."""
    return _table(_GAMMA_HEAD, [(name, *texts) for name, texts in GAMMAS.items()], markdown)


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
