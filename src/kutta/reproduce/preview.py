"""Before anything is run: what a reproduction would cost."""

from collections.abc import Sequence
from typing import Any

import torch
from rich import box
from rich.table import Table

from kutta.reproduce.estimate import CPU_SHARE, GPU_RATE, Estimate, estimate, machine_rate
from kutta.reproduce.plan import Plan, PlannedRun, missing_text
from kutta.reproduce.results import read_results
from kutta.reproduce.table import short_count

DAY = 86_400


class Preview:
    """The cost of a plan's runs: `rate` is the FLOP/s they are assumed to run at."""

    def __init__(self, plan: Plan, rate: float) -> None:
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

    def table(self) -> Table:
        """A line for each cell; its seeds cost the same."""
        plan = self.plan
        table = Table(
            title=f"{plan.experiment.title} ({plan.name}, scale {plan.scale_name})",
            box=box.SIMPLE_HEAD,
            title_justify="left",
        )
        table.add_column("run", no_wrap=True)
        table.add_column("method")
        for heading in ("parameters", "steps", "tokens", "seeds", "each"):
            table.add_column(heading, justify="right")
        for row, column in plan.experiment.cells():
            runs = [run for run in self.runs if (run.row, run.column) == (row, column)]
            cost = self.costs[runs[0].name]
            table.add_row(
                f"{row}-{column}",
                method_of(runs[0]),
                short_count(cost.parameters),
                f"{cost.steps:,}",
                f"{cost.tokens / 1e6:,.1f}M",
                ",".join(str(run.seed) for run in runs),
                duration(cost.seconds(self.rate)),
            )
        return table

    def summary(self, jobs: int) -> list[str]:
        """What all that is left to do costs, and what is in the way of beginning."""
        disk = sum(cost.disk for cost in self.left) / 1e9
        time = sum(cost.seconds(self.rate) for cost in self.left)
        said = f"{len(self.left)} of {len(self.runs)} runs to make: {_flop(self.flop)}, "
        if self.plan.scale_name == "paper":
            said += (
                f"{_short(time / DAY)} GPU-days if a GPU sustains {GPU_RATE / 1e12:.0f} TFLOP/s in "
                f"mixed precision (an assumption: a V100 or A100 class GPU)"
            )
        else:
            said += (
                f"about {duration(time / jobs)} with {jobs} at a time, if training reaches "
                f"{CPU_SHARE:.0%} of the {self.rate / CPU_SHARE / 1e9:.0f} GFLOP/s that a matrix "
                "product does on a core here"
            )
        remarks = [f"Remark: {sentence}" for sentence in missing_text(self.plan)]
        if self.plan.scale_name == "paper" and not torch.cuda.is_available():
            remarks.append("Remark: there is no GPU here, and a CPU would take years.")
        return [f"{said}; about {disk:.1f} GB of disk.", *remarks]

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
                    "seconds": self.costs[run.name].seconds(self.rate),
                }
                for run in self.runs
            ],
        }


def previews(plans: Sequence[Plan]) -> list[Preview]:
    """What each plan costs, at the rate of a GPU or of this machine."""
    small = any(plan.scale_name == "small" for plan in plans)
    here = machine_rate() * CPU_SHARE if small else 0.0
    return [Preview(plan, here if plan.scale_name == "small" else GPU_RATE) for plan in plans]


def method_of(run: PlannedRun) -> str:
    """The method of a run in a few words."""
    model = run.config.model
    parts = [model.solver]
    parts += [f"{model.gamma} γ"] if model.gamma != "tableau" else []
    parts += [model.field] if model.field != "san+ffn" else []
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A length of time in the unit a person would use."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 3 * DAY else f"{seconds / DAY:.1f} days"


def _flop(count: float) -> str:
    exa = count / 1e18
    return f"{_short(exa)} exaFLOP" if exa > 0.1 else f"{_short(1000 * exa)} petaFLOP"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"
