"""Training, validation, search and sampling leave no tensor on the wrong device, without a GPU.

Every scenario runs on the CPU and on a fake GPU (see fake_device.py), in a process of its own; the
numbers have to agree. Scenarios with a planted mistake show that one would be found.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SOUND = [
    *(f"{what}, {kind}" for what in ("train", "validate") for kind in ("translation", "language")),
    *(f"{what}, {kind}" for what in ("search", "sample") for kind in ("translation", "language")),
    *("train, gated", "train, pc2", "search, ensemble"),
]
PLANTED = ["planted, a sum", "planted, a choice of rows"]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[Any]]:
    """By scenario: what came out on the CPU and on the fake GPU."""
    command = [sys.executable, str(HERE / "scenarios.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_scenario_is_looked_at(outcomes: dict[str, list[Any]]) -> None:
    assert sorted(outcomes) == sorted([*SOUND, *PLANTED])


@pytest.mark.parametrize("name", SOUND)
def test_a_gpu_computes_what_a_cpu_computes(outcomes: dict[str, list[Any]], name: str) -> None:
    cpu, gpu = outcomes[name]
    for found in (cpu, gpu):
        assert not isinstance(found, dict), found["trace"]
    assert flat(gpu) == pytest.approx(flat(cpu), rel=1e-4)


@pytest.mark.parametrize("name", PLANTED)
def test_a_tensor_that_stays_on_the_cpu_is_found(outcomes: dict[str, list[Any]], name: str) -> None:
    cpu, gpu = outcomes[name]
    assert not isinstance(cpu, dict), cpu
    assert "gpu" in gpu["error"]
    assert "cpu" in gpu["error"]


def flat(found: Any) -> list[float]:
    """The numbers of nested lists, in order."""
    return (
        [number for part in found for number in flat(part)] if isinstance(found, list) else [found]
    )
