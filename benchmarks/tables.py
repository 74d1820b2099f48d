"""What was measured, for a terminal and for a page."""

from collections.abc import Callable

from figures import Figure, Row
from rich.table import Table

SHORT: dict[str, Callable[[Row], str]] = {
    "toolkit": lambda row: row["toolkit"],
    "size": lambda row: row["size"],
    "method": lambda row: row["method"],
    "update": lambda row: row["split"],
    "tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
    "GEMM": lambda row: f"{row['gemm_share']:.0%}",
    "peak MB": lambda row: f"{row['peak_mb']:,}",
    "start": lambda row: f"{row['startup_s']:.1f} s",
}
LONG = SHORT | {
    "toolkit": lambda row: f"{row['toolkit']} {row['version']}",
    "slowest to fastest round": lambda row: " to ".join(f"{rate:,.0f}" for rate in row["spread"]),
    "tokens an update": lambda row: f"{row['tokens_per_update']:,}",
}
WORDS = 4  # columns; numbers follow


def table_of_rows(rows: list[Row]) -> Table:
    table = Table(title="Training, side by side")
    for number, heading in enumerate(SHORT):
        table.add_column(heading, justify="left" if number < WORDS else "right")
    for row in rows:
        table.add_row(*(show(row) for show in SHORT.values()))
    return table


def markdown_of_rows(rows: list[Row]) -> str:
    rule = ["---"] * WORDS + ["---:"] * (len(LONG) - WORDS)
    lines = [list(LONG), rule, *([show(row) for show in LONG.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table_of_figures(figures: list[Figure]) -> Table:
    table = Table(title="Targets")
    for heading in ("case", "figure", "measured", "target", ""):
        table.add_column(heading, justify="right" if heading in ("measured", "target") else "left")
    for figure in figures:
        style = {"ok": "green", "MISSED": "red"}.get(figure.verdict)
        table.add_row(
            figure.case, figure.name, shown(figure), figure.target, figure.verdict, style=style
        )
    return table


def shown(figure: Figure) -> str:
    return f"{figure.value:,.{0 if figure.value >= 100 else 2}f}"


def markdown_of_figures(figures: list[Figure]) -> str:
    """Those that have a target."""
    lines = [["size", "figure", "measured", "target", ""], ["---", "---", "---:", "---:", "---"]]
    lines += [[f.case, f.name, shown(f), f.target, f.verdict] for f in figures if f.target]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
