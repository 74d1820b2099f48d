"""`kutta --help` as a person reads it, and what the shell completes."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from kutta import box
from kutta.cli import app
from kutta.cli.complete import (
    checkpoints,
    configs,
    configs_and_runs,
    corpora,
    metrics,
    runs,
)
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
    assert configs_and_runs("") == [*presets(), "en-de", "box/", "mine.toml", "runs/"]
    assert runs("r") == [], "the shell completes paths"
    assert runs("absent/") == []
    assert corpora("tatoeba-en-d") == ["tatoeba-en-de"]
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


class Terminal:
    """An interactive shell at which a person presses keys."""

    def __init__(self, home: Path, *command: str) -> None:
        environment = {
            "HOME": str(home),
            "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "TERM": "xterm",
            "LC_ALL": "C.UTF-8",
        }
        self.process, self.screen = pty.fork()
        if self.process == 0:
            os.chdir(home)
            os.execvpe(command[0], command, environment)
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))

    def press(self, keys: str, until: str, seconds: float = 30.0) -> None:
        """Press keys, and wait until the output has a text."""
        end, output = time.monotonic() + seconds, ""
        os.write(self.screen, keys.encode())
        while until not in output:
            assert time.monotonic() < end, f"{until!r} is not in {output!r}"
            if select.select([self.screen], [], [], 0.2)[0]:
                output += os.read(self.screen, 65536).decode(errors="replace")
                output = re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|[()].)", "", output)  # colours, cursor

    def close(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.close(self.screen)
        os.waitpid(self.process, 0)


@contextmanager
def terminal(home: Path, *command: str) -> Iterator[Terminal]:
    """A shell that is ready for keys."""
    opened = Terminal(home, *command)
    try:
        opened.press("echo re''ady\n", "ready\r\n")
        yield opened
    finally:
        opened.close()


# What is typed before each Tab, and what the shell adds.
COMPLETED = (
    [("kutta eval", "uate"), ("ru", "ns/"), ("mi", "ne/")],
    [("kutta train multi30k-rk", "2"), ("--dr", "y-run")],
)


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_works_at_a_terminal(name: str, home: Path) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not on this machine")
    (home / "runs" / "mine").mkdir(parents=True)
    # Without this folder fish reads all manual pages of the machine first.
    (home / ".local/share/fish/generated_completions").mkdir(parents=True)
    with terminal(home, name, "-i") as at:
        at.press("kutta --install-completion\n", f"{name} completion installed")
    with terminal(home, name, "-i") as at:
        for line in COMPLETED:
            for typed, added in line:
                at.press(f"{typed}\t", added)
            # Ctrl-A goes to the start of the line, so that the completed line is printed.
            words = " ".join(typed + added for typed, added in line).replace("/ ", "/")
            at.press("\x01echo done: \n", f"done: {words.rstrip('/')}")
