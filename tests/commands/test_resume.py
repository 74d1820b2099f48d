"""`kutta translate --resume`: killed commands continue, and lines of two inputs never mix."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kutta.commands.resume import resumed_output, without_first
from kutta.errors import InputError
from kutta.export.export import export_run
from kutta.runs import Run
from tests.test_cli import ENVIRONMENT, is_one_sentence, kutta

LINES = [f"{'ba be bi do du'[: 2 + 3 * (n % 5)]}" for n in range(150)]
FACTS = {"input": "one"}


@pytest.fixture(scope="module")
def model(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "toy"
    export_run(Run.load(toy_run), path)
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.xx"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def killed(command: list[str], part: Path, lines: int) -> None:
    """Feed lines, but not the end of the input, and kill the command when some are written."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stdin
        process.stdin.write("".join(f"{line}\n" for line in LINES[:lines]).encode())
        process.stdin.flush()
        end = time.monotonic() + 60
        while not part.is_file() or b"\n" not in part.read_bytes():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)


def test_a_killed_command_continues(model: Path, text: Path, tmp_path: Path) -> None:
    whole, output, part = (tmp_path / name for name in ("whole", "out", "out.part"))
    assert kutta("translate", model, "--input", text, "--output", whole).code == 0
    command = [sys.executable, "-m", "kutta", "translate", str(model), "--resume", "--output"]
    killed([*command, str(output)], part, lines=100)
    assert not output.exists()
    kept = part.read_bytes().rpartition(b"\n")[0] + b"\n"
    assert whole.read_bytes().startswith(kept)
    part.write_bytes(kept + b"half of a li")  # as a kill in the middle of a write leaves it
    done = subprocess.run(
        [*command, str(output)], input=text.read_bytes(), capture_output=True, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(kept.splitlines())} lines of".encode() in done.stderr
    assert output.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out"]


def test_another_input_model_or_option_is_refused(
    model: Path, toy_run: Path, text: Path, tmp_path: Path
) -> None:
    output, part, record = (tmp_path / f"out{end}" for end in ("", ".part", ".part.json"))
    words = ["translate", model, "--input", text, "--output", output, "--resume"]
    part.write_text("not ours\n")
    is_one_sentence(kutta(*words), "another input")
    part.unlink()
    text.write_text("ba\n\udcff\n", errors="surrogateescape")
    assert kutta(*words).code == 2, "the second line is not UTF-8"
    assert json.loads(record.read_text())["n_best"] == 1
    part.write_text("first\n")
    for others in ((*words, "--beam", "2"), ("translate", toy_run, *words[2:])):
        is_one_sentence(kutta(*others), "another input, model or other options")
    text.write_text("ba\nbe\n")
    is_one_sentence(kutta(*words), "another input")
    assert part.read_text() == "first\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "--output"),
        (("--output", "a.gz"), "compressed"),
        (("--output", "a", "--n-best", "2"), "--json"),
        (("--output", "a", "--sample"), "--sample"),
    ],
)
def test_what_cannot_be_resumed_is_told(model: Path, words: tuple[str, ...], sentence: str) -> None:
    is_one_sentence(kutta("translate", model, "--resume", *words), sentence)


def test_a_complete_output_stays(model: Path, text: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("mine\n")
    words = ("translate", model, "--input", text, "--output", output, "--resume")
    is_one_sentence(kutta(*words), "is complete")
    assert output.read_text() == "mine\n"


def test_two_processes_do_not_write_at_once(tmp_path: Path) -> None:
    with resumed_output(tmp_path / "out", FACTS) as (out, before):
        assert before == 0
        out.write("one\n")
        with (
            pytest.raises(InputError, match="another process"),
            resumed_output(tmp_path / "out", FACTS),
        ):
            pass
    assert (tmp_path / "out").read_text() == "one\n"


def test_fewer_lines_than_before_are_refused() -> None:
    assert list(without_first(iter(LINES[:5]), 2)) == LINES[2:5]
    assert list(without_first(iter(LINES[:2]), 2)) == []
    with pytest.raises(InputError, match="has 1 lines, but 2 are translated"):
        without_first(iter(LINES[:1]), 2)


def test_an_error_keeps_the_lines(tmp_path: Path) -> None:
    def fail() -> None:
        with resumed_output(tmp_path / "out", FACTS) as (out, _):
            out.write("one\ntwo\n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not (tmp_path / "out").exists()
    with resumed_output(tmp_path / "out", FACTS) as (out, before):
        assert before == 2
        out.write("three\n")
    assert (tmp_path / "out").read_text() == "one\ntwo\nthree\n"


def test_what_a_killed_resume_leaves_beside_its_output_is_removed(
    toy_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("ba be\n")
    words = ("translate", toy_run, "in.txt", "--output", "out.txt", "--resume")
    assert kutta(*words, cwd=tmp_path).code == 0
    (tmp_path / "out.txt.part.json").write_text("{}")
    is_one_sentence(kutta(*words, cwd=tmp_path), "is complete")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]
