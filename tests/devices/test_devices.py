"""Training, validation, search and sampling leave no tensor on the wrong device, without a GPU.

Every scenario runs on the CPU and on a fake device, and the numbers have to agree. The device is
"cuda" where no gradient is needed and "gpu" for training, because a CPU build of torch cannot run a
backward pass on "cuda" (see fake_device.py). Scenarios with a planted mistake show that one would
be found. All run in a process of their own.
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
    *("train, gated", "train, pc2", "train, dropout", "train, recompute", "train, layer drop"),
    *("train, bf16", "validate, bf16", "profile, admin", "search, ensemble"),
]
PLANTED = [
    *("planted, training", "planted, validation", "planted, search", "planted, sampling"),
    "planted, a choice of rows",
]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[Any]]:
    """By scenario: what came out on the CPU and on the fake device."""
    command = [sys.executable, str(HERE / "scenarios.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_scenario_is_looked_at(outcomes: dict[str, list[Any]]) -> None:
    assert sorted(outcomes) == sorted([*SOUND, *PLANTED])


@pytest.mark.parametrize("name", SOUND)
def test_a_gpu_computes_what_a_cpu_computes(outcomes: dict[str, list[Any]], name: str) -> None:
    cpu, fake = outcomes[name]
    for found in (cpu, fake):
        assert not isinstance(found, dict), found["trace"]
    assert flat(fake) == pytest.approx(flat(cpu), rel=1e-2 if "bf16" in name else 1e-4)


def test_dropout_changes_the_loss_and_recomputation_does_not(
    outcomes: dict[str, list[Any]],
) -> None:
    plain, dropout, recompute = (
        outcomes[f"train, {name}"][1] for name in ("translation", "dropout", "recompute")
    )
    assert flat(dropout) != pytest.approx(flat(plain), rel=1e-2)
    assert flat(recompute) == pytest.approx(flat(dropout), rel=1e-6)


@pytest.mark.parametrize("name", PLANTED)
def test_a_tensor_that_stays_on_the_cpu_is_found(outcomes: dict[str, list[Any]], name: str) -> None:
    cpu, fake = outcomes[name]
    assert not isinstance(cpu, dict), cpu
    assert ("gpu" if name == "planted, training" else "cuda") in fake["error"]
    assert "cpu" in fake["error"]


def flat(found: Any) -> list[float]:
    """The numbers of nested lists, in order."""
    return (
        [number for part in found for number in flat(part)] if isinstance(found, list) else [found]
    )
