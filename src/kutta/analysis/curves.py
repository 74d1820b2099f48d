"""The training curve of a run as a picture."""

from pathlib import Path
from typing import Any

from kutta.errors import InputError
from kutta.files import atomic_path
from kutta.runs import Run


def plot_training(run: Path) -> Path:
    """Draw perplexity and BLEU by step from metrics.jsonl; return the picture's path."""
    import matplotlib  # slow to import, and needed for this picture only

    matplotlib.use("Agg")
    from matplotlib import pyplot

    records = Run.records_at(run)
    training = [r for r in records if r["kind"] == "train"]
    held_out = [r for r in records if r["kind"] == "valid"]
    if not training:
        raise InputError(f"{run} has no records in metrics.jsonl to draw; train it first.")
    plt: Any = pyplot
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    axis.plot(*_points(training, "perplexity"), color="#4f46e5", label="training perplexity")
    if held_out:
        axis.plot(
            *_points(held_out, "perplexity"), "o-", color="#c2550a", label="validation perplexity"
        )
    axis.set(xlabel="step", ylabel="perplexity (log scale)", yscale="log", title=run.name)
    axis.grid(alpha=0.25)
    lines, labels = axis.get_legend_handles_labels()
    scored = [r for r in held_out if r.get("bleu") is not None]
    if scored:
        right = axis.twinx()
        right.plot(*_points(scored, "bleu"), "s--", color="#0f766e", label="validation BLEU")
        right.set(ylabel="BLEU", ylim=(0, 100))
        more = right.get_legend_handles_labels()
        lines, labels = lines + more[0], labels + more[1]
    axis.legend(lines, labels, loc="center right", framealpha=0.9)
    path = run / "training.png"
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    plt.close(figure)
    return path


def _points(records: list[dict[str, Any]], key: str) -> tuple[list[int], list[float]]:
    return [r["step"] for r in records], [r[key] for r in records]
