"""The dry run of a reproduction: its runs and their estimated cost."""

from collections.abc import Sequence
from typing import Any

import torch
from rich import box
from rich.table import Table

from kutta.reproduce.estimate import (
    BF16_GAIN,
    CPU_SHARE,
    GPU_RATE,
    Estimate,
    estimate,
    machine_rate,
)
from kutta.reproduce.plan import Plan, PlannedRun, missing_text
from kutta.reproduce.results import read_results
from kutta.reproduce.table import short_count

DAY = 86_400
YEAR = 365 * DAY


class Preview:
    """The cost of a plan's runs on a core that does `rate` FLOP/s in fp32; on a GPU if None."""

    def __init__(self, plan: Plan, rate: float | None) -> None:
        self.plan, self.rate = plan, rate
        results = read_results(plan.folder)
        self.runs = [run for run in plan.runs if run.seed in plan.asked]
        self.done = {run.name for run in self.runs if run.name in results}
        self.costs = {run.name: estimate(run.config) for run in self.runs}

    @property
    def left(self) -> list[Estimate]:
        return [cost for name, cost in self.costs.items() if name not in self.done]

    @property
    def flop(self) -> float:
        return sum(cost.flop for cost in self.left)

    def seconds(self, cost: Estimate) -> float:
        """The estimated time of a run."""
        return cost.gpu_seconds() if self.rate is None else cost.cpu_seconds(self.rate)

    def table(self) -> Table:
        """A row for each cell; its seeds cost the same."""
        plan = self.plan
        table = Table(
            title=f"{plan.experiment.title} ({plan.name}, scale {plan.scale_name})",
            box=box.SIMPLE_HEAD,
            title_justify="left",
        )
        table.add_column("run", no_wrap=True)
        table.add_column("method")
        for heading in ("parameters", "steps", "tokens", "seeds", "each"):
            table.add_column(heading, justify="right", no_wrap=heading == "each")
        for row, column in plan.experiment.cells():
            runs = [run for run in self.runs if (run.row, run.column) == (row, column)]
            cost = self.costs[runs[0].name]
            table.add_row(
                f"{row}-{column}",
                method_of(runs[0]),
                short_count(cost.parameters),
                f"{cost.steps:,}",
                _tokens(cost.tokens),
                ",".join(str(run.seed) for run in runs),
                duration(self.seconds(cost)),
            )
        return table

    def summary(self, jobs: int) -> list[str]:
        """The cost of all remaining runs, and warnings."""
        disk = sum(cost.disk for cost in self.left) / 1e9
        total = f"{len(self.left)} of {len(self.runs)} runs to do: {_flop(self.flop)}, "
        notes = [f"Note: {sentence}" for sentence in missing_text(self.plan)]
        if self.plan.scale_name == "paper":
            days = sum(cost.gpu_seconds() for cost in self.left) / DAY
            total += (
                f"{_short(days)} GPU-days if a GPU sustains {GPU_RATE / 1e12:.0f} TFLOP/s in "
                f"mixed precision (an assumption: a V100 or A100 class GPU)"
            )
            if self.rate is not None:
                here = self._on_cpu(jobs, self.rate)
                notes.append(f"Note: this machine has no GPU; on its CPU it takes {here}.")
        elif self.rate is not None:
            total += self._on_cpu(jobs, self.rate)
        return [f"{total}; about {disk:.1f} GB of disk.", *notes]

    def _on_cpu(self, jobs: int, rate: float) -> str:
        """The time of the remaining runs on this machine, and the assumptions behind it."""
        time = sum(cost.cpu_seconds(rate) for cost in self.left)
        may_stop = any(run.config.train.patience for run in self.runs if run.name not in self.done)
        early = ", less with early stopping" if may_stop else ""
        in_bf16 = any(cost.cpu_gain > 1 for cost in self.left)
        gain = f" in fp32, and {BF16_GAIN} times that in bf16" if in_bf16 else ""
        return (
            f"about {duration(time / jobs)} with {jobs} at a time{early}, if training reaches "
            f"{CPU_SHARE:.0%} of the {rate / CPU_SHARE / 1e9:.0f} GFLOP/s of a matrix product on "
            f"one core of this machine{gain}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "experiment": self.plan.name,
            "scale": self.plan.scale_name,
            "folder": str(self.plan.folder),
            "flop": self.flop,
            "missing_text": missing_text(self.plan),
            "runs": [
                {
                    "name": run.name,
                    "method": method_of(run),
                    "done": run.name in self.done,
                    "parameters": self.costs[run.name].parameters,
                    "steps": self.costs[run.name].steps,
                    "tokens": self.costs[run.name].tokens,
                    "flop": self.costs[run.name].flop,
                    "seconds": self.seconds(self.costs[run.name]),
                }
                for run in self.runs
            ],
        }


def previews(plans: Sequence[Plan]) -> list[Preview]:
    """The cost of each plan: on a GPU at the paper's scale if there is one, else on a core."""
    on_gpu = [plan.scale_name == "paper" and torch.cuda.is_available() for plan in plans]
    here = 0.0 if all(on_gpu) else machine_rate() * CPU_SHARE
    return [Preview(plan, None if gpu else here) for plan, gpu in zip(plans, on_gpu, strict=True)]


def method_of(run: PlannedRun) -> str:
    """A short description of a run's method."""
    model = run.config.model
    parts = [model.solver]
    parts += [f"{model.gamma} γ"] if model.gamma != "tableau" else []
    parts += [model.field] if model.field != "san+ffn" else []
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A duration in a readable unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 3 * DAY:
        return f"{seconds / 3600:.1f} h"
    count, unit = (seconds / DAY, "days") if seconds < 2 * YEAR else (seconds / YEAR, "years")
    return f"{count:.1f} {unit}" if count < 100 else f"{count:,.0f} {unit}"


def _tokens(count: int) -> str:
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.1f}M"


def _flop(count: float) -> str:
    exa = count / 1e18
    return f"{_short(exa)} exaFLOP" if exa > 0.1 else f"{_short(1000 * exa)} petaFLOP"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"
