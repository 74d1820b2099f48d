"""The analyses as tables for the terminal: one function per analysis, from its JSON.

They fit 80 columns. On a narrower terminal cells break between numbers, never within one.
"""

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

Result = dict[str, Any]
Row = dict[str, Any]

_NAMES = ("block", "stack", "method")
_LISTS = ("|F_i|", "cos(F1, F_i)", "coeffi-\ncients")
_ORDERS = "observed orders"
_GAP = 2  # characters between columns
_BROKEN = (*_LISTS, _ORDERS)  # columns of several numbers, which may take several lines


def show(table: Table, console: Console) -> None:
    """Print a table; one that is wider than the terminal is not truncated."""
    narrowest = sum((column.min_width or 0) + _GAP for column in table.columns)
    if narrowest > console.width:
        table.width = narrowest
    console.print(table, "", soft_wrap=True)


def truncation_tables(result: Result) -> Iterator[Table]:
    """Error and observed order by block."""
    methods = [m for m in dict.fromkeys(r["method"] for r in result["rows"]) if m != "own"]
    for (stack, view), rows in groups(result["rows"], "stack", "view").items():
        learned = any(row["time"] == "own" for row in rows)
        table = _table(
            f"{stack} by {view}: error over the time T / length of the own step",
            *("block", "T", "own", *(["own,\nT=1"] if learned else []), *methods),
            _ORDERS,
        )
        for _, of_block in groups(rows, "layer", "sublayers").items():
            at = {(row["method"], row["time"]): row for row in of_block}
            time = "own" if ("own", "own") in at else "1"
            shown = [at[method, time] for method in ("own", *methods)]
            first, *others = (_error(row) for row in shown)
            against_one = [_error(at["own", "1"])] if learned else []
            orders = " ".join(_order(row) for row in shown)
            block, span = _block(shown[0]), _number(shown[0]["span"], ".2f")
            _add(table, block, span, first, *against_one, *others, orders)
        yield table


def blocks_tables(result: Result) -> Iterator[Table]:
    """Lengths, directions and coefficients by block."""
    for (stack,), rows in groups(result["rows"], "stack").items():
        table = _table(
            f"{stack}: lengths per token, cosines, coefficients",
            *("block", "T", "|y|", "|y'-y|/|y|", *_LISTS),
        )
        for row in rows:
            learned = [f"{_words(name)} {_list(v)}" for name, v in row["coefficients"].items()]
            _add(
                table,
                _block(row),
                _number(row["time"], ".2f"),
                _number(row["state"], ".1f"),
                _number(row["relative_step"], ".3f"),
                _list(row["stages"]),
                _list(row["cosine_to_first"][1:]),
                "; ".join(learned),
            )
        yield table


def gradients_tables(result: Result) -> Iterator[Table]:
    """Gradient norms by block."""
    for (stack,), rows in groups(result["rows"], "stack").items():
        table = _table(
            f"{stack}: gradient norms",
            *("block", "|dL/dy|", "|dL/dtheta|"),
        )
        for row in rows:
            numbers = (_number(row[key], ".4g") for key in ("state", "parameters"))
            _add(table, _block(row), *numbers)
        yield table


def embedding_tables(result: Result) -> Iterator[Table]:
    """How much of the input token is left by block."""
    tied = "tied" if result["tied"] else "not tied"
    for (stack,), rows in groups(result["rows"], "stack").items():
        table = _table(
            f"{stack}: the input token's embedding e in the state y (output layer {tied})",
            *("block", "<y,e>/<e,e>", "10%", "90%", "others", "excess", "cosine"),
        )
        for row in rows:
            keys = ("coefficient", "low", "high", "others", "excess", "cosine")
            _add(table, _block(row), *(_number(row[key], ".3f") for key in keys))
        yield table


def inference_tables(result: Result) -> Iterator[Table]:
    """Quality and cost of every variant."""
    trained = result["rows"][0]
    bleu = "bleu" in trained
    table = _table(
        "the same weights under other methods",
        *("stack", "method", "T", "F/layer", "multiply\nadds", "seconds", "perplexity"),
        *(["BLEU"] if bleu else []),
    )
    for row in result["rows"]:
        evaluations = row["evaluations"]
        shown = evaluations.get(row["stack"], max(evaluations.values()))
        _add(
            table,
            row["stack"] or "-",
            row["method"] + (f" x {row['substeps']}" if row["substeps"] > 1 else ""),
            row["time"],
            _number(shown, ".3g"),
            f"x{_number(row['multiply_adds'] / trained['multiply_adds'], '.2f')}",
            _number(row["seconds"], ".2f"),
            _number(row["perplexity"], ".3f"),
            *([_number(row["bleu"], ".2f")] if bleu else []),
        )
    yield table


def groups(rows: list[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of some columns, in the order in which these appear."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0)
    table.show_edge = table.pad_edge = False
    for name in columns:
        side = "left" if name in (*_NAMES, *_LISTS) else "right"
        width = _longest_word(name)
        table.add_column(name, justify=side, no_wrap=name not in _BROKEN, min_width=width)
    return table


def _add(table: Table, *cells: str) -> None:
    """Add a row, and keep each column as wide as its longest unbreakable text."""
    for column, cell in zip(table.columns, cells, strict=True):
        needed = len(cell) if column.no_wrap else _longest_word(cell)
        column.min_width = max(column.min_width or 0, needed)
    table.add_row(*cells)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")


def _block(row: Row) -> str:
    return f"{row['layer']} {row['sublayers']}"


def _error(row: Row) -> str:
    return _number(row.get("error"), ".2g") if row["sentences"] else "not solved"


def _order(row: Row) -> str:
    return _number(row.get("order"), ".1f").rjust(3)


def _list(values: list[float | None]) -> str:
    return " ".join(_number(value, ".3g") for value in values)


def _number(value: float | None, form: str) -> str:
    """A number, or a dash if it is unknown or was not finite; e-5 instead of e-05."""
    if value is None:
        return "-"
    short = ".3g" if abs(value) >= 1e5 else form
    return format(value, short).replace("e-0", "e-").replace("e+0", "e+")
