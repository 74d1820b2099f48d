"""An installation that only translates: `pip install kutta`, without torch."""

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from kutta.errors import TRAIN
from kutta.export.export import export_run
from kutta.runs import Run
from kutta.translate import Translator

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BLOCK = f"import sys; sys.modules |= dict.fromkeys({sorted(TRAIN)!r}); "  # None: not importable
COMMAND = "from kutta.cli import main; main()"


@pytest.fixture(scope="module")
def folder(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "toy"
    export_run(Run.load(toy_run), path)
    return path


def without_torch(code: str, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run code in a process in which nothing of the extra `train` can be imported."""
    command = [sys.executable, "-c", BLOCK + code, *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def names(requirements: list[str]) -> set[str]:
    return {requirement.partition(">")[0].partition("[")[0] for requirement in requirements}


def test_the_packages_of_the_extra_are_those_that_the_code_names() -> None:
    assert names(PROJECT["optional-dependencies"]["train"]) == TRAIN
    assert not names(PROJECT["dependencies"]) & TRAIN


def test_torch_is_not_needed(folder: Path) -> None:
    code = "from kutta import Translator; print(*Translator.load(sys.argv[1]).translate(['ba be']))"
    alone = without_torch(code, str(folder))
    assert alone.returncode == 0, alone.stderr
    expected = Translator.load(folder).translate(["ba be"])[0]
    assert alone.stdout == f"{expected}\n"
    done = without_torch(COMMAND, "translate", str(folder), text="ba be\n\n")
    assert (done.returncode, done.stdout) == (0, f"{expected}\n\n"), done.stderr


@pytest.mark.parametrize("words", [("--help",), ("translate", "--help"), ("models",)])
def test_commands_that_need_no_training_work(words: tuple[str, ...]) -> None:
    done = without_torch(COMMAND, *words)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["translate", "evaluate", "sample", "export", "average"])
def test_what_is_missing_is_told_in_a_sentence(command: str, toy_run: Path) -> None:
    done = without_torch(COMMAND, command, str(toy_run), text="ba\n")
    assert done.returncode == 2
    assert done.stderr.startswith("kutta: This needs ")
    assert "pip install 'kutta[train]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_python_is_told_too(toy_run: Path) -> None:
    code = f"""
from kutta import InputError, Translator
from kutta.translate.writer import Writer
for kind in (Translator, Writer):
    try:
        kind.load({str(toy_run)!r})
    except InputError as error:
        print(error)
"""
    done = without_torch(code)
    assert done.stdout.count("kutta[train]") == 2, done.stderr


@pytest.mark.slow
def test_an_environment_without_torch_translates(folder: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", "constraints.txt", "."], cwd=ROOT, check=True)
    gone = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    assert gone.returncode, "torch was installed"
    done = subprocess.run(
        [python, "-m", "kutta", "translate", str(folder)],
        input="ba be\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{Translator.load(folder).translate(['ba be'])[0]}\n"
