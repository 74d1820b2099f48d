"""A toy experiment, plans of it, results to put into it, and the command line in this process."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kutta.reproduce.perform import Result
from kutta.reproduce.plan import Plan, make_plan, write_plan
from kutta.reproduce.results import Results, write_results
from tests.conftest import toy_toml
from tests.test_cli import Answer
from tests.test_cli import kutta as run_kutta

PRESET = toy_toml(
    run="runs/toy",
    data={"dir": "data/toy"},
    model={"gamma": "tableau"},
    train={"max_steps": 4, "save_every": 2, "warmup": 2, "log_every": 1, "valid_bleu": False},
    decode={"max_length": 12},
)

TOY = """
title = "Toy table"
reproduces = "nothing at all"
metric = "chrF2"
better = "higher"
figure = "bars"
axis = "layers"

[scales.small]
extends = "toy-preset"
corpus = "toy text"
seeds = [1]
note = "Too small to mean anything."

[columns.one]
name = "1 layer"
at = 1

[columns.two]
name = "2 layers"
at = 2
model.encoder_layers = 2

[rows.residual]
name = "Residual"
model = { solver = "euler", gamma = "tableau" }
published = { one = 10.0, two = 11.0 }

[rows.rk2]
name = "RK2"
against = "residual"
model = { solver = "rk2", gamma = "learned" }
published = { one = 12.5 }
"""


Kutta = Callable[..., Answer]
PlanOf = Callable[..., Plan]


@pytest.fixture
def folder(tmp_path: Path, toy_run: Path) -> Path:
    """A folder with toy.toml, its preset, and its text below data/."""
    shutil.copytree(toy_run.parent / "text", tmp_path / "data" / "toy")
    (tmp_path / "toy-preset.toml").write_text(PRESET, encoding="utf-8")
    (tmp_path / "toy.toml").write_text(TOY, encoding="utf-8")
    return tmp_path


@pytest.fixture
def kutta(folder: Path) -> Kutta:
    """Run the command line in this process, in `folder`, as `python -m kutta` would."""

    return partial(run_kutta, cwd=folder)


@pytest.fixture
def plan_of(folder: Path) -> PlanOf:
    """The plan of the toy experiment, its text changed by (old, new) pairs."""

    def make(*changes: tuple[str, str], seeds: tuple[int, ...] = ()) -> Plan:
        text = TOY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (folder / "toy.toml").write_text(text, encoding="utf-8")
        return make_plan(str(folder / "toy.toml"), "small", folder / "data", folder / "out", seeds)

    return make


def result(score: float, **changes: Any) -> Result:
    """The result of a run that was never made."""
    values: dict[str, Any] = {
        "score": score,
        "signature": "metric:toy",
        "scores": {"chrF2": score},
        "run": "config:toy|seed:1",
        "parameters": 1_234_567,
        "steps": 4,
        "epochs": 2.0,
        "seconds": 10.0,
        "from_step": 0,
    }
    return Result(**values | changes)


def pretend(plan: Plan, scores: dict[str, float]) -> Results:
    """Put results into a plan's folder as if the runs had been made."""
    write_plan(plan)
    results = {name: result(score) for name, score in scores.items()}
    for name in results:
        model = plan.folder / "runs" / name / "model.safetensors"
        model.parent.mkdir(parents=True, exist_ok=True)
        model.write_text("weights")
    write_results(plan.folder, results)
    return results


@pytest.fixture
def pretended() -> Callable[[Plan, dict[str, float]], Results]:
    return pretend
