"""benchmarks/serve.py: what wrk measures, and what is said where it cannot be measured."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import Running

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import serve
from environments import Absent


def test_wrk_counts_the_requests(served: Running, tmp_path: Path) -> None:
    if not shutil.which("wrk"):
        pytest.skip("wrk is not installed")
    before = len(served.lines)
    found = serve.Load(["One.", "Zwei „drei“."], "en", "de", tmp_path).run(served.url, 4, 1)
    assert found["refused"] == found["broken"] == 0
    assert 0 < found["requests"] <= len(served.lines) - before
    assert 0 < found["p50"] <= found["p99"] < 1000
    wrong = serve.Load(["One."], "en", "tlh", tmp_path).run(served.url, 1, 1)
    assert wrong["refused"] > 0


def test_a_server_that_does_not_start_is_absent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no model')"]
    with pytest.raises(Absent, match="did not start: no model"), serve.serving(command, tmp_path):
        pass


def test_the_table_has_rates_and_failures() -> None:
    row: dict[str, Any] = {"clients": 8, "requests": 100, "seconds": 4.0, "p50": 1.0, "p99": 2.0}
    table = serve.table_of({"kutta": {"rows": [row | {"refused": 2, "broken": 1, "mb": 400.0}]}})
    cells = [next(iter(column.cells)) for column in table.columns]
    assert cells == ["kutta", "8", "25.0", "1.0", "2.0", "3", "400"]


def test_without_wrk_one_sentence_says_so() -> None:
    command = [sys.executable, str(serve.INSIDE.parent / "serve.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": ""})
    assert done.returncode == 1
    assert done.stderr == "wrk is not installed; install it (Debian: apt install wrk).\n"
