"""What the pictures of the analyses have in common: panels, the names of blocks, legends."""

from collections.abc import Sequence
from typing import Any

Result = dict[str, Any]
Rows = list[dict[str, Any]]
Figure = Any  # matplotlib is loaded when a picture is drawn, not before


def block_name(row: dict[str, Any]) -> str:
    return f"{row['layer']}\n{row['sublayers']}"


def block_names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(block_name(row) for row in rows))


def label_blocks(axis: Any, labels: Sequence[str]) -> None:
    """Layer and sublayers under each block; where all integrate the same, the layer alone."""
    same = len({label.split("\n")[1] for label in labels}) == 1
    shown = [label.split("\n")[0] if same else label for label in labels]
    axis.set_xticks(range(len(labels)), shown, fontsize="small" if len(labels) < 13 else "x-small")
    axis.set_xlabel(f"layer ({labels[0].split(chr(10))[1]})" if same else "layer and sublayer")


def plain_numbers(side: Any) -> None:
    """Write the numbers of a logarithmic axis as 0.02, not as powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = side.get_view_interval()
    narrow = high < 6 * low
    side.set_major_locator(LogLocator(subs=(1, 1.5, *range(2, 10)) if narrow else (1, 2, 3, 5)))
    side.set_major_formatter(StrMethodFormatter("{x:g}"))
    side.set_minor_formatter(NullFormatter())


def with_zero(limits: tuple[float, float]) -> tuple[float, float]:
    """Limits from 0 on, so that a constant looks like one."""
    return min(0.0, limits[0]), max(0.0, limits[1])


def legend_below(figure: Figure, axes: Sequence[Any]) -> None:
    """One legend for all panels, out of their way."""
    entries = {
        label: line
        for axis in axes
        for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    columns = min(len(entries), 5 if len(axes) > 1 else 3)
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False
    )


def panel_figure(result: Result, count: int, title: str) -> tuple[Figure, list[Any]]:
    """A figure of so many panels, two beside each other; an odd last one is as wide as two."""
    rows = [[n, min(n + 1, count - 1)] for n in range(0, count, 2)] if count > 1 else [[0]]
    figure = load_pyplot().figure(
        figsize=(5.6 * len(rows[0]) + 0.4, 3.1 * len(rows) + 1.0), layout="constrained"
    )
    figure.suptitle(f"{result['run']}: {title}")
    panels = figure.subplot_mosaic(rows)
    for axis in panels.values():
        axis.grid(alpha=0.25, which="major")
    return figure, [panels[n] for n in range(count)]


def grid_figure(result: Result, rows: int, columns: int, title: str) -> tuple[Figure, Any]:
    plt = load_pyplot()
    size = (5.6 * columns + 0.4, 3.1 * rows + 0.6)
    figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    figure.suptitle(f"{result['run']}: {title}")
    for axis in grid.flat:
        axis.grid(alpha=0.25, which="major")
    return figure, grid


def load_pyplot() -> Any:
    import matplotlib  # slow to import, and needed for pictures only

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
