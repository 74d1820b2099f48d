"""What was measured, for a terminal, and as tables and charts of the documentation.

    python benchmarks/report.py FILE ...      what train.py --json wrote; by default results/

Training goes to docs/performance.md and decoding to docs/speed.md. The text between the generated
parts of a page is written by hand.
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
DECODING_PAGE = PAGE.with_name("speed.md")
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
CHART = "decoding.svg"
DECODING: dict[str, Callable[[Row], str]] = {
    "program": lambda row: f"{row['program']} {row['version']}",
    "size": lambda row: row["size"],
    "method": lambda row: row["method"],
    "precision": lambda row: ", ".join(filter(None, (row["precision"], row["option"]))),
    "beam 4, tokens/s": lambda row: f"{row['tokens_per_second']['4']:,.0f}",
    "beam 1, tokens/s": lambda row: f"{row['tokens_per_second']['1']:,.0f}",
    "latency, ms": lambda row: f"{row['latency_ms']:,.0f}",
    "95%, ms": lambda row: f"{row['latency_p95_ms']:,.0f}",
    "peak MB": lambda row: f"{row['peak_mb']:,}",
    "start": lambda row: f"{row['startup_s']:.2f} s",
    "disk MB": lambda row: f"{row['disk_mb']:,.0f}",
}
SCORES: dict[str, Callable[[Row], str]] = {
    "program": lambda row: f"{row['program']} {row['version']}",
    "precision": lambda row: ", ".join(filter(None, (row["precision"], row["option"]))),
    "workers": lambda row: row["workers"],
    "test": lambda row: row["test"],
    "sentences/s": lambda row: f"{row['sentences_per_second']:,.1f}",
    "scores": lambda row: ", ".join(f"{name} {value}" for name, value in row["scores"].items()),
}
DECODING_PANELS: dict[str, Callable[[Row], float]] = {
    "tokens a second, beam 4": lambda row: row["tokens_per_second"]["4"],
    "latency of one sentence, ms": lambda row: row["latency_ms"],
    "peak memory, MB": lambda row: row["peak_mb"],
}


def table_of_rows(rows: list[Row]) -> Table:
    return table_of("Training, side by side", SHORT, rows)


def table_of_decoding(rows: list[Row]) -> Table:
    return table_of("Decoding, side by side", DECODING, rows)


def table_of_scores(rows: list[Row]) -> Table:
    return table_of("Trained weights", SCORES, rows)


def table_of(title: str, columns: dict[str, Callable[[Row], str]], rows: list[Row]) -> Table:
    table = Table(title=title)
    for number, heading in enumerate(columns):
        table.add_column(heading, justify="left" if number < WORDS else "right")
    for row in rows:
        table.add_row(*(show(row) for show in columns.values()))
    return table


def markdown_of_rows(rows: list[Row], columns: dict[str, Callable[[Row], str]] = LONG) -> str:
    rule = ["---"] * WORDS + ["---:"] * (len(columns) - WORDS)
    lines = [list(columns), rule, *([show(row) for show in columns.values()] for row in rows)]
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
    batches, _, way = row["split"].partition(", ")
    tokens = batches.rpartition(" ")[2]
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
                bars = bars_of(rows, size)
                ours = [row["toolkit"] == "Kutta" for row in bars]
                draw_bars(panel, [row[key] for row in bars], list(map(label_of, bars)), ours)
                panel.set_title(f"{size}: {title}", loc="left")
            panels[1].set_yticklabels([])


def draw_decoding(rows: list[Row], path: Path) -> None:
    """Bars of the residual model by program: a row of panels for each size."""
    bars = {size.name: [r for r in rows if is_drawn(r, size.name)] for size in reversed(SIZES)}
    sizes = {size: found for size, found in bars.items() if found}
    heights = [len(found) for found in sizes.values()]
    with new_figure(path) as figure:
        figure.set_size_inches(11, 0.9 + 0.36 * sum(heights))
        ratios = {"height_ratios": heights}
        axes = figure.subplots(len(sizes), len(DECODING_PANELS), squeeze=False, gridspec_kw=ratios)
        for (size, found), panels in zip(sizes.items(), axes, strict=True):
            labels = [f"{row['program']} {DECODING['precision'](row)}" for row in found]
            ours = [row["program"].startswith("Kutta") for row in found]
            for (title, value), panel in zip(DECODING_PANELS.items(), panels, strict=True):
                draw_bars(panel, list(map(value, found)), labels, ours)
                panel.set_title(f"{size}: {title}", loc="left")
            for panel in panels[1:]:
                panel.set_yticklabels([])


def is_drawn(row: Row, size: str) -> bool:
    return row["size"] == size and row["method"] == "residual"


def draw_bars(panel: Axes, values: list[float], labels: list[str], ours: list[bool]) -> None:
    colours = [BLUE if one else OTHERS for one in ours]
    bars = panel.barh(range(len(values)), values, color=colours, height=0.7)
    panel.bar_label(bars, [f"{value:,.0f}" for value in values], padding=4)
    panel.set_yticks(range(len(values)), labels)
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
        raise SystemExit(f"The page has no marks {start.strip()} and {end.strip()}.")
    return head + start + body + end + tail


def page_of(text: str, measured: dict[str, Any]) -> str:
    """The page with the tables of what was measured."""
    order = [row for size in SIZES for row in bars_of(measured["ways"], size.name)]
    text = between(text, "rows", markdown_of_rows(order))
    text = between(text, "targets", markdown_of_figures(figures_in(measured)))
    return between(text, "absent", markdown_of_absent(measured))


def page_of_decoding(text: str, measured: dict[str, Any]) -> str:
    """The page with the tables of what was measured of decoding."""
    if measured["rows"]:
        chart = f"![Speed, latency and memory of decoding]({CHART})"
        table = markdown_of_rows(measured["rows"], DECODING)
        text = between(text, "decoding", f"{chart}\n\n{table}")
    scores = markdown_of_rows(measured["scores"], SCORES)
    text = between(text, "decoding scores", scores if measured["scores"] else "None in this run.")
    missing = "\n".join(f"- Not measured: {name}" for name in measured["not_measured"])
    targets = [markdown_of_figures(figures_in(measured)), missing]
    text = between(text, "decoding targets", "\n\n".join(filter(None, targets)))
    return between(text, "decoding absent", markdown_of_absent(measured))


def figures_in(measured: dict[str, Any]) -> list[Figure]:
    values = ({k: v for k, v in f.items() if k != "verdict"} for f in measured["figures"])
    return [Figure(**value) for value in values]


def markdown_of_absent(measured: dict[str, Any]) -> str:
    absent = [f"- {name}: {reason}" for name, reason in measured["absent"].items()]
    return "\n".join(absent) or "None was absent."


def joined(files: list[dict[str, Any]]) -> dict[str, Any]:
    """What was measured in several runs, such as one for each size."""
    lists = {key: [x for file in files for x in file[key]] for key in ("rows", "ways", "figures")}
    absent = {name: reason for file in files for name, reason in file["absent"].items()}
    return lists | {"absent": absent}


def write_training(files: list[dict[str, Any]]) -> None:
    measured = joined(files)
    ours = [row for row in measured["ways"] if row["toolkit"] == "Kutta"]
    peers = [row for row in measured["rows"] if row["toolkit"] != "Kutta"]
    draw([*ours, *peers], PAGE.with_suffix(".svg"))
    PAGE.write_text(page_of(PAGE.read_text("utf-8"), measured), encoding="utf-8")


def write_decoding(measured: dict[str, Any]) -> None:
    if measured["rows"]:
        draw_decoding(measured["rows"], PAGE.with_name(CHART))
    text = DECODING_PAGE.read_text("utf-8")
    DECODING_PAGE.write_text(page_of_decoding(text, measured), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the charts and write the tables.")
    help_ = "what train.py --json (a file for each size) or decode.py --json wrote"
    parser.add_argument("files", type=Path, nargs="*", default=MEASURED, help=help_)
    files = [json.loads(file.read_text("utf-8")) for file in parser.parse_args().files]
    for measured in (file for file in files if file.get("kind") == "decode"):
        write_decoding(measured)
    if training := [file for file in files if file.get("kind") != "decode"]:
        write_training(training)


if __name__ == "__main__":
    main()
