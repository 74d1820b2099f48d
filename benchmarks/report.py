"""What was measured, for a terminal, and as the tables and the picture of docs/performance.md.

    python benchmarks/report.py FILE ...      what train.py --json wrote; by default results/

The text of the page between its generated parts is written by hand.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import Figure, Row
from peers.toolkit import SIZES
from rich.table import Table

from kutta.plotting import BLUE, Axes, new_figure

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "performance.md"
MEASURED = [HERE / "results" / f"train-{size.name}.json" for size in SIZES]
OTHERS = "#C4C4C4"  # the colour of peers
PANELS = {"target tokens a second": "tokens_per_second", "peak memory, MB": "peak_mb"}
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


def bars_of(rows: list[Row], size: str) -> list[Row]:
    """The rows of one size: Kutta's methods as measured, then peers from fast to slow."""
    ours = [row for row in rows if row["size"] == size and row["toolkit"] == "Kutta"]
    peers = [row for row in rows if row["size"] == size and row["toolkit"] != "Kutta"]
    return ours + sorted(peers, key=lambda row: -row["tokens_per_second"])


def label_of(row: Row) -> str:
    pieces, _, way = row["split"].partition(", ")
    tokens = pieces.rpartition(" ")[2]
    if row["toolkit"] != "Kutta":
        return f"{row['toolkit']}, {way}" if way else row["toolkit"]
    at_once = f"{way} of {tokens}" if way else f"{tokens} at a time"
    return f"Kutta {row['method']}, {at_once}"


def draw(rows: list[Row], path: Path) -> None:
    """Bars by toolkit: a row of panels for each size, speed on the left and memory on the right."""
    sizes = [size.name for size in SIZES if bars_of(rows, size.name)]
    heights = [len(bars_of(rows, size)) for size in sizes]
    with new_figure(path) as figure:
        figure.set_size_inches(9, 0.9 + 0.36 * sum(heights))
        ratios = {"height_ratios": heights}
        axes = figure.subplots(len(sizes), len(PANELS), squeeze=False, gridspec_kw=ratios)
        for size, panels in zip(sizes, axes, strict=True):
            for (title, key), panel in zip(PANELS.items(), panels, strict=True):
                draw_bars(panel, bars_of(rows, size), key)
                panel.set_title(f"{size}: {title}", loc="left")
            panels[1].set_yticklabels([])


def draw_bars(panel: Axes, rows: list[Row], key: str) -> None:
    values = [row[key] for row in rows]
    colours = [BLUE if row["toolkit"] == "Kutta" else OTHERS for row in rows]
    bars = panel.barh(range(len(rows)), values, color=colours, height=0.7)
    panel.bar_label(bars, [f"{value:,.0f}" for value in values], padding=4)
    panel.set_yticks(range(len(rows)), [label_of(row) for row in rows])
    panel.invert_yaxis()
    panel.set_xlim(0, 1.15 * max(values))
    panel.set_xticks([])
    panel.tick_params(length=0)
    panel.grid(visible=False)
    panel.spines[:].set_visible(False)


def between(text: str, name: str, body: str) -> str:
    """`text` with what stands between the marks of `name` replaced by `body`."""
    start, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    head, opened, rest = text.partition(start)
    _, closed, tail = rest.partition(end)
    if not (opened and closed):
        raise SystemExit(f"{PAGE.name} has no marks {start.strip()} and {end.strip()}.")
    return head + start + body + end + tail


def page_of(text: str, measured: dict[str, Any]) -> str:
    """The page with the tables of what was measured."""
    order = [row for size in SIZES for row in bars_of(measured["ways"], size.name)]
    figures = [
        Figure(**{k: v for k, v in f.items() if k != "verdict"}) for f in measured["figures"]
    ]
    text = between(text, "rows", markdown_of_rows(order))
    text = between(text, "targets", markdown_of_figures(figures))
    absent = [f"- {name}: {reason}" for name, reason in measured["absent"].items()]
    return between(text, "absent", "\n".join(absent) or "None was absent.")


def joined(files: list[dict[str, Any]]) -> dict[str, Any]:
    """What was measured in several runs, such as one for each size."""
    lists = {key: [x for file in files for x in file[key]] for key in ("rows", "ways", "figures")}
    absent = {name: reason for file in files for name, reason in file["absent"].items()}
    return lists | {"absent": absent}


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the chart and write the tables.")
    help_ = "what train.py --json wrote, such as a file for each size"
    parser.add_argument("files", type=Path, nargs="*", default=MEASURED, help=help_)
    files = parser.parse_args().files
    measured = joined([json.loads(file.read_text("utf-8")) for file in files])
    ours = [row for row in measured["ways"] if row["toolkit"] == "Kutta"]
    peers = [row for row in measured["rows"] if row["toolkit"] != "Kutta"]
    draw([*ours, *peers], PAGE.with_suffix(".svg"))
    PAGE.write_text(page_of(PAGE.read_text("utf-8"), measured), encoding="utf-8")


if __name__ == "__main__":
    main()
