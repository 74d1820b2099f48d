"""`kutta --help` as a person reads it, and what the shell completes."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from kutta import box
from kutta.cli import app
from kutta.cli.complete import checkpoints, configs, metrics, runs
from kutta.config.load import presets
from kutta.metrics import METRICS
from tests.test_cli import kutta


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, groups too, with the words that call it."""
    yield words, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*words, name))


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_has_whole_sentences_and_ordinary_metavars(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command = ALL[words]
    for text in (command.help, *(one.help for one in command.params)):
        assert re.match(r"[A-Z].*\.(\.\.)?$", " ".join(text.split())), text
    for one in command.params:
        if not getattr(one, "is_flag", False):
            assert one.metavar, f"{one.name} has no metavar"
    page = kutta(*words, "--help").out
    usage, *rest = page.splitlines()
    assert not re.search(r"[{}<>]", page), page
    assert all(len(line) <= 80 for line in rest)
    for one in command.params:
        if one.param_type_name == "argument":
            name = one.metavar if one.required else f"[{one.metavar}]"
            assert f" {name}" in usage
            assert f"\n  {one.metavar} " in page


# ---- completion -----------------------------------------------------------------------------


def test_presets_models_and_paths_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "mine.toml").touch()
    (tmp_path / "mine.txt").touch()
    monkeypatch.setattr(box, "BOX", tmp_path / "box")
    (tmp_path / "box" / "en-de").mkdir(parents=True)
    (tmp_path / "box" / "en-de" / "card.json").touch()
    assert configs("") == [*presets(), "box/", "mine.toml", "runs/"]
    assert configs("wmt14-en-de-b") == [
        name for name in presets() if name.startswith("wmt14-en-de-b")
    ]
    assert runs("") == ["en-de", "box/", "runs/"]
    assert runs("runs/m") == ["runs/mine/"]
    assert runs("absent/") == []
    assert checkpoints("b") == ["best"]
    assert metrics("") == list(METRICS)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home directory with the program `kutta` in bin."""
    program = tmp_path / "bin" / "kutta"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom kutta.cli import main\nmain()\n")
    program.chmod(0o755)
    return tmp_path


def shell(home: Path, script: str, **more: str) -> str:
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        env=os.environ | {"HOME": str(home), "PATH": path} | more,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_completion_installs_and_works_in_bash(home: Path) -> None:
    # `:` afterwards, so that bash does not replace itself by the program and stays detectable.
    assert "bash completion installed" in shell(home, "kutta --install-completion; :")
    assert ".bash_completions/kutta.sh" in (home / ".bashrc").read_text()
    (home / "runs" / "mine").mkdir(parents=True)
    asked = """
        source .bashrc
        complete -p kutta | grep -q _kutta_completion || exit 1
        ask() {
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            _kutta_completion $1
            echo "${COMPREPLY[*]}"
        }
        ask kutta tra; ask kutta train wmt14-en-de-base; ask kutta translate runs/
        ask kutta translate run --checkpoint l; ask kutta translate run --out
    """
    trains, config, run, checkpoint, output = shell(home, asked).splitlines()
    assert trains.split() == ["train", "translate"]
    assert "wmt14-en-de-base" in config.split()
    assert run == "runs/mine/"
    assert checkpoint == "last"
    assert output == "--output"


@pytest.mark.parametrize(
    ("name", "file", "part"),
    [
        ("zsh", ".zfunc/_kutta", "#compdef kutta"),
        ("fish", ".config/fish/completions/kutta.fish", "complete --command kutta"),
    ],
)
def test_completion_installs_for_other_shells(name: str, file: str, part: str, home: Path) -> None:
    # The shell is given instead of detected, as it may not be on this machine.
    given = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert name in shell(home, f"kutta --install-completion {name}", **given)
    script = (home / file).read_text()
    assert part in script
    assert f"_KUTTA_COMPLETE=complete_{name}" in script
    # What that script asks.
    given = {"_TYPER_COMPLETE_ARGS": "kutta eval", "_KUTTA_COMPLETE": f"complete_{name}"}
    given |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_WORD_TO_COMPLETE": "eval"}
    assert "evaluate" in shell(home, "kutta", **given)
