"""The training curve of a run as a figure."""

from pathlib import Path
from typing import Any

from kutta.errors import InputError
from kutta.plotting import BLUE, GREEN, RED, Figure, new_figure, plain_numbers, title
from kutta.runs.run import METRICS, read_records

Records = list[dict[str, Any]]


def plot_training(run: Path) -> Path:
    """Draw perplexity and BLEU by step from metrics.jsonl; return the path of the figure."""
    records = read_records(run / METRICS)
    training = [r for r in records if r["kind"] == "train"]
    held_out = [r for r in records if r["kind"] == "valid"]
    if not training:
        raise InputError(f"{run} has no records in metrics.jsonl to draw; train it first.")
    path = run / "training.png"
    with new_figure(path) as figure:
        title(figure, run.name)
        _draw(figure, training, held_out)
    return path


def _draw(figure: Figure, training: Records, held_out: Records) -> None:
    figure.set_size_inches(7, 4)
    axis = figure.subplots()
    axis.plot(*_points(training, "perplexity"), color=BLUE, label="training perplexity")
    if held_out:
        points = _points(held_out, "perplexity")
        axis.plot(*points, "o-", color=RED, label="validation perplexity")
    axis.set(xlabel="step", ylabel="perplexity (log scale)", yscale="log")
    plain_numbers(axis.yaxis)
    lines, labels = axis.get_legend_handles_labels()
    scored = [r for r in held_out if r.get("bleu") is not None]
    if scored:
        right = axis.twinx()
        right.spines["right"].set_visible(True)
        right.grid(visible=False)
        right.plot(*_points(scored, "bleu"), "s--", color=GREEN, label="validation BLEU")
        right.set(ylabel="BLEU", ylim=(0, 100))
        more = right.get_legend_handles_labels()
        lines, labels = lines + more[0], labels + more[1]
    axis.legend(lines, labels, loc="center right")


def _points(records: Records, key: str) -> tuple[list[int], list[float]]:
    return [r["step"] for r in records], [r[key] for r in records]
