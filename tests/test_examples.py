"""Every example runs as its docstring says, and prints what it promises."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from kutta import Translator
from kutta.export.export import export_run
from kutta.runs import Run

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name), run_name="example")


def test_every_example_has_a_test() -> None:
    names = {file.name for file in EXAMPLES.iterdir() if file.is_file()}
    here = Path(__file__).read_text(encoding="utf-8")
    assert all(f'"{name}"' in here for name in names - {"README.md"})


def test_training_and_translating(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example("train_and_translate.py")["main"](tmp_path, steps=6)
    out = capsys.readouterr().out
    assert re.findall(r"^update (\d+): validation perplexity \d+", out, re.MULTILINE) == [
        *("2", "4", "6")
    ]
    assert len(re.findall(r"^     *-\d+\.\d\d  ", out, re.MULTILINE)) == 6, "two of each line"


def test_translating_without_torch(toy_run: Path, tmp_path: Path) -> None:
    export_run(Run.load(toy_run), tmp_path / "model")
    command = [sys.executable, str(EXAMPLES / "embed_runtime.py"), str(tmp_path / "model")]
    done = subprocess.run(command, input="ba be\n\ndu\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = Translator.load(tmp_path / "model").translate(["ba be", "", "du"])
    assert done.stdout.splitlines() == expected
    assert example("embed_runtime.py")["Service"](str(tmp_path / "model")).one("du") == expected[2]
    (tmp_path / "model" / "decoder.onnx").unlink()
    done = subprocess.run(command, input="", capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"embed_runtime: .*decoder\.onnx.*\n", done.stderr)


def test_a_tableau_of_your_own(capsys: pytest.CaptureFixture[str]) -> None:
    example("own_tableau.py")["main"]()
    out = capsys.readouterr().out
    ratios = [float(number) for number in re.findall(r"divides it by ([\d.]+)", out)]
    assert ratios == pytest.approx([4] * 4, abs=0.2), "order two"
    assert "refused: The weights b" in out
    assert "(7, 2, 32)" in out


def test_a_solver_of_your_own(capsys: pytest.CaptureFixture[str]) -> None:
    example("own_solver.py")["main"]()
    out = capsys.readouterr().out
    assert re.search(r"observed order (1\.9|2\.0|2\.1)", out)
    assert re.search(r"the states change by [1-9][\d.]*%", out)


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(EXAMPLES / "solvers.ipynb", as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute(env=dict(os.environ))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") for output in outputs)
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 3
    observed = dict(re.findall(r"^(\S+) +order \d, observed ([\d.]+)$", text, re.MULTILINE))
    assert float(observed["rk4"]) == pytest.approx(4, abs=0.2)
    assert re.search(r"validation perplexity \d+\.\d after 200 updates", text)
    assert re.findall(r"^(euler|rk2|rk4)$", text, re.MULTILINE) == ["euler", "rk2", "rk4"]


def test_the_notebook_is_kept_with_its_output_and_without_paths() -> None:
    text = (EXAMPLES / "solvers.ipynb").read_text(encoding="utf-8")
    assert '"image/png"' in text
    assert not re.search(r"/(tmp|home|root|srv)/", text)
