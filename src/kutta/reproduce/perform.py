"""One run of a reproduction: train or resume it, score it, and return the result.

`python -m kutta.reproduce.perform FOLDER RUN` does so in a separate process.
"""

import json
import math
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from kutta import __version__
from kutta.commands import evaluate_run
from kutta.config import Config
from kutta.data.batches import BatchStream
from kutta.errors import InputError
from kutta.model.weights import read_shapes
from kutta.parsing import read_json
from kutta.runs import Run
from kutta.runs.checkpoints import list_checkpoints
from kutta.training.run import train


@dataclass(frozen=True)
class Result:
    """The result of a finished run; `seconds` is the training time since `from_step`."""

    score: float
    signature: str
    scores: dict[str, float]
    run: str
    parameters: int
    steps: int
    epochs: float
    seconds: float
    from_step: int
    signatures: dict[str, str] = field(default_factory=dict[str, str])  # of all scores

    def score_by(self, metric: str) -> float | None:
        """The score by this metric; None if the run was not scored by it."""
        return self.scores.get(metric)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def perform(config: Config, metric: str, console: Console) -> Result | None:
    """Train or resume, and score; None if training was interrupted."""
    path = Path(config.run)
    done = list_checkpoints(path)
    started = time.perf_counter()
    outcome = train(config, console=console)
    seconds = time.perf_counter() - started
    if outcome.ended == "interrupted":
        return None
    run = Run.load(path)
    measured = _measure(run, metric)
    return Result(
        score=measured.scores[metric],
        signature=measured.signatures[metric],
        scores=measured.scores,
        signatures=measured.signatures,
        run=measured.run,
        parameters=sum(map(math.prod, read_shapes(run.final_weights).values())),
        steps=outcome.step,
        epochs=outcome.step / _steps_per_epoch(run),
        seconds=round(seconds, 1),
        from_step=done[-1].step if done else 0,
    )


@dataclass(frozen=True)
class _Measured:
    """Scores and their signatures by metric, and the signature of the run."""

    scores: dict[str, float]
    signatures: dict[str, str]
    run: str


def _measure(run: Run, metric: str) -> _Measured:
    """The scores of a run, including `metric`."""
    config = run.config
    if metric in _LOGGED:
        kind, key, summary = _LOGGED[metric]
        values = [r[key] for r in run.records() if r["kind"] == kind and r[key] is not None]
        if not values:
            raise InputError(f"{run.metrics} has no {metric}; lower train.log_every.")
        score = float(values[-1] if summary == "last" else median(values))
        signature = f"kutta|{metric}|{summary} of {len(values)} records|version:{__version__}"
        of_run = f"config:{config.hash()}|seed:{config.train.seed}"
        return _Measured({metric: score}, {metric: signature}, of_run)
    result = evaluate_run(run.path, config.data.test[:1], None, config.train.device)[0]
    named = {score.name: score for score in result.scores}
    if metric not in named:
        there = ", ".join(named)
        raise InputError(f"{run.path} is not scored by {metric}; its metrics are {there}.")
    return _Measured(
        {name: score.value for name, score in named.items()},
        {name: score.signature for name, score in named.items()},
        result.signature,
    )


# Metrics from the records of training: kind of record, key, and summary. The median is robust
# against the first steps, whose gradients are many times larger than all others.
_LOGGED = {
    "validation perplexity": ("valid", "perplexity", "last"),
    "gradient norm": ("train", "grad_norm", "median"),
}


def _steps_per_epoch(run: Run) -> float:
    settings = run.config.train
    stream = BatchStream(
        run.train_store(), settings.micro_tokens, settings.seed, few_shapes=settings.compile
    )
    return stream.batches_per_epoch / settings.micro_batches


def main() -> None:
    """Perform the run given by the arguments and print its result as JSON."""
    folder, name = Path(sys.argv[1]), sys.argv[2]
    plan = read_json(folder / "plan.json")
    values = next(run["config"] for run in plan["runs"] if run["name"] == name)
    values["train"] |= {"workers": 1, "threads": 1, "lanes": 1}  # parallel runs, one core each
    try:
        result = perform(Config.parse(values), plan["metric"], Console(quiet=True))
    except InputError as error:
        sys.exit(str(error))
    if result is None:
        sys.exit(130)
    print(json.dumps(result.to_dict()))


if __name__ == "__main__":
    main()
