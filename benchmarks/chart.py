"""Draw docs/performance.svg and write the tables of docs/performance.md from a measured file.

    python benchmarks/chart.py benchmarks/results/train-tiny.json benchmarks/results/train-base.json

The text of the page between its generated parts is written by hand.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from figures import Figure, Row
from peers.toolkit import SIZES
from tables import markdown_of_figures, markdown_of_rows

mpl.use("agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
INK, SOFT, OURS, OTHERS = "#1f2937", "#6b7280", "#4f46e5", "#c3c8d4"
PANELS = {"target tokens a second": "tokens_per_second", "peak memory, MB": "peak_mb"}


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
    figure, axes = plt.subplots(
        len(sizes),
        len(PANELS),
        figsize=(9, 0.9 + 0.36 * sum(heights)),
        squeeze=False,
        layout="constrained",
        gridspec_kw={"height_ratios": heights},
    )
    for size, panels in zip(sizes, axes, strict=True):
        for (title, key), panel in zip(PANELS.items(), panels, strict=True):
            draw_bars(panel, bars_of(rows, size), key)
            panel.set_title(f"{size}: {title}", loc="left", fontsize=10, color=INK)
        panels[1].set_yticklabels([])
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def draw_bars(panel: Axes, rows: list[Row], key: str) -> None:
    values = [row[key] for row in rows]
    colours = [OURS if row["toolkit"] == "Kutta" else OTHERS for row in rows]
    bars = panel.barh(range(len(rows)), values, color=colours, height=0.7)
    panel.bar_label(bars, [f"{value:,.0f}" for value in values], padding=4, fontsize=9, color=SOFT)
    panel.set_yticks(range(len(rows)), [label_of(row) for row in rows], fontsize=9, color=INK)
    panel.invert_yaxis()
    panel.set_xlim(0, 1.15 * max(values))
    panel.set_xticks([])
    panel.tick_params(length=0)
    for side in panel.spines.values():
        side.set_visible(False)


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
    parser.add_argument("files", type=Path, nargs="+", help="what train.py --json wrote")
    files = parser.parse_args().files
    measured = joined([json.loads(file.read_text("utf-8")) for file in files])
    ours = [row for row in measured["ways"] if row["toolkit"] == "Kutta"]
    peers = [row for row in measured["rows"] if row["toolkit"] != "Kutta"]
    draw([*ours, *peers], PAGE.with_suffix(".svg"))
    PAGE.write_text(page_of(PAGE.read_text("utf-8"), measured), encoding="utf-8")


if __name__ == "__main__":
    main()
