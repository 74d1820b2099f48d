"""`kutta translate --ray`: what it refuses, and a cluster of two nodes of which one is killed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kutta import InputError
from kutta.commands import cluster, translate_text
from kutta.export.export import export_run
from kutta.runs import Run

WORDS = ["ba", "be", "bi", "bo", "bu", "da", "de", "di", "do", "du"]
TASK = "_translate_block"  # Ray names a process after what it does


@pytest.fixture(scope="module")
def folder(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "toy"
    export_run(Run.load(toy_run), path)
    return path


def translate(runs: list[Path], input: Path, **options: Any) -> None:
    others = {"output": None, "n_best": 1, "sampling": None, "device": "auto", "as_json": False}
    translate_text(runs, input, **{**others, **options})


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.xx"
    file.write_text("ba be\n")
    return file


def test_what_a_cluster_does_not_translate(toy_run: Path, folder: Path, text: Path) -> None:
    with pytest.raises(InputError, match=r"not an exported model.*kutta export"):
        translate([toy_run], text, ray="auto")
    text.with_suffix(".po").write_text("")
    with pytest.raises(InputError, match="--ray is for plain text"):
        translate([folder], text.with_suffix(".po"), output=text.with_suffix(".out"), ray="auto")
    with pytest.raises(InputError, match="beam must be at least 1"):
        translate([folder], text, ray="nowhere:1", beam=0)


def test_what_is_missing_is_named(
    folder: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"--ray needs ray.*pip install 'kutta\[ray\]'"):
        translate([folder], text, ray="auto")


def test_a_node_with_another_kutta_is_told(folder: Path) -> None:
    work = cluster.Work(None, 1, 1, False, {}, version="0.0.0")
    with pytest.raises(InputError, match=r"Kutta .* and the command 0\.0\.0; install the same"):
        cluster._translate_block(None, work)


class Nodes:
    """A Ray cluster of two nodes of one core each, on loopback."""

    def __init__(self) -> None:
        utils = pytest.importorskip("ray.cluster_utils", reason="kutta[ray] is not installed")
        size = {"num_cpus": 1, "object_store_memory": 80_000_000}
        self.cluster = utils.Cluster(
            initialize_head=True, head_node_args={**size, "include_dashboard": False}
        )
        self.second = self.cluster.add_node(**size)
        self.cluster.wait_for_nodes()

    def tasks_on_second(self) -> list[str]:
        """The processes of the second node that translate at this moment."""
        (raylet,) = self.second.all_processes["raylet"]
        listed = subprocess.run(
            ["ps", "--ppid", str(raylet.process.pid), "-o", "args="], capture_output=True, text=True
        )
        return [line for line in listed.stdout.splitlines() if TASK in line]

    def kill_second(self) -> None:
        self.cluster.remove_node(self.second, allow_graceful=False)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    one = Nodes()
    yield one
    one.cluster.shutdown()


@pytest.mark.slow
def test_a_node_is_killed_and_nothing_is_lost_or_repeated(
    nodes: Nodes, folder: Path, tmp_path: Path
) -> None:
    lines = [" ".join(WORDS[int(digit)] for digit in str(n)) for n in range(1000, 13_000)]
    lines[::97] = [""] * len(lines[::97])
    source, output = tmp_path / "text.xx", tmp_path / "text.yy"
    source.write_text("\n".join(lines) + "\n")
    address = nodes.cluster.address
    words = ["translate", str(folder), str(source), "--ray", address, "--resume", "--output"]
    command = [sys.executable, "-m", "kutta", *words, str(output)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as one:
        part = output.with_name("text.yy.part")
        while one.poll() is None and not (part.exists() and part.stat().st_size):
            time.sleep(0.05)
        while one.poll() is None and not nodes.tasks_on_second():
            time.sleep(0.01)
        assert one.poll() is None, "it was over before a node could be killed"
        nodes.kill_second()
        assert one.wait(240) == 0, one.stderr.read()
        assert one.stderr.read() == ""
    alone = tmp_path / "alone.yy"
    translate([folder], source, output=alone)
    assert output.read_text() == alone.read_text()
    assert len(output.read_text().splitlines()) == len(lines)
    assert not os.path.exists(part)
