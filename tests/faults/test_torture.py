"""A short form of `make torture`, and its planted bugs."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.faults import disk
from tests.faults.torture import ON_DISK, SHORT

MECHANISMS = {
    "old files stay until they are replaced": "kills",
    "files are flushed before they are renamed": "kills",
    "the position in the data is restored": "kills",
    "errors of the disk are reported": "errors",
    "checksums are checked": "flips",
    "links are not followed": "directories",
    "nesting has a limit": "readers",
    "only a newline ends a line": "text",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process of its own has found, from one seed."""
    if not hasattr(os, "fork"):
        pytest.skip("the suite forks, which this system cannot")
    out = tmp_path_factory.mktemp("torture") / "report.json"
    words = ["--short", "--plants", "--seed", "1", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.torture", *words],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.is_file(), done.stdout + done.stderr
    return json.loads(out.read_text())


def needs_disk(part: str) -> None:
    if part in ON_DISK:
        try:
            disk.library()
        except disk.NoDisk as reason:
            pytest.skip(str(reason))


@pytest.mark.parametrize("part", SHORT)
def test_nothing_is_lost_or_silently_wrong(report: dict[str, Any], part: str) -> None:
    needs_disk(part)
    found = report["parts"][part]
    assert found["problems"] == []
    assert found["tried"] >= SHORT[part]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_planted_bug_is_found(report: dict[str, Any], mechanism: str) -> None:
    needs_disk(MECHANISMS[mechanism])
    assert report["plants"][mechanism]


def test_every_plant_is_tested() -> None:
    from tests.faults.plants import PLANTS

    assert {plant.mechanism: plant.part for plant in PLANTS} == MECHANISMS
    assert set(SHORT) == {plant.part for plant in PLANTS}
