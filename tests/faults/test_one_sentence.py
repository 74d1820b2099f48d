"""Whatever fails, a command ends with one sentence and an exit code."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kutta.cli import failure
from tests.test_cli import ENVIRONMENT, Answer, is_one_sentence, kutta

LONG = "x" * 300


def in_shell(command: str) -> tuple[int, str]:
    """The exit code of a command of bash, where $K is Kutta, and its standard error."""
    script = f'K="{sys.executable} -m kutta"; {command}'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        ("$K info --list >/dev/full", 2, "Cannot use standard output: No space left on device"),
        ("$K info --list >&-", 2, "Cannot use standard output: it is closed"),
        ("$K info --list >/dev/full 2>/dev/full", 2, ""),
        ("$K info nothing 2>&-", 2, ""),
        ("$K info nothing 2>/dev/full", 2, ""),
        ("$K info --list | true; exit ${PIPESTATUS[0]}", 141, ""),
    ],
)
def test_standard_streams_may_be_closed_or_full(command: str, code: int, sentence: str) -> None:
    if "| true" in command:  # the reader has exited before the first line is written
        command = command.replace("$K info --list", "(sleep 0.2; exec $K info --list)")
    found, err = in_shell(command)
    assert found == code
    assert sentence in err
    assert err.count("\n") == bool(sentence)


def test_a_closed_input_is_told(toy_run: Path) -> None:
    code, err = in_shell(f"$K translate {toy_run} <&-")
    assert (code, err.count("\n")) == (2, 1)
    assert "Cannot use standard input: it is closed" in err


@pytest.mark.parametrize(
    "words",
    [
        ("translate", "RUN", "--output", ""),
        ("translate", "RUN", "--input", ""),
        ("translate", "RUN", "--output", f"/tmp/{LONG}"),
        ("translate", "RUN", "--output", "/proc/nothing"),
        ("translate", "RUN", "--input", LONG),
        ("translate", LONG),
        ("evaluate", "RUN", LONG),
        ("evaluate", "RUN", "test", "--data-dir", LONG),
        ("average", "RUN", "--output", ""),
        ("average", "RUN", "--output", f"{LONG}.safetensors"),
        ("average", "RUN", "--output", "/proc/nothing.safetensors"),
        ("train", f"{LONG}.toml"),
        ("train", "CONFIG", "--set", f"run={LONG}"),
        ("train", "CONFIG", "--set", "run=/proc/nothing"),
        ("train", "CONFIG", "--set", f"data.dir={LONG}"),
        ("train", "CONFIG", "--set", f"data.train={LONG}"),
        ("train", "CONFIG", "--set", f"train.seed={'9' * 5000}"),
        ("train", "CONFIG", "--set", f"data.test={'[' * 5000}"),
        ("train", "CONFIG", "--set", 'run="a\\u0000b"'),
        ("train", "CONFIG", "--set", f"{'a.' * 5000}b=1"),
        ("score", LONG, LONG),
        ("info", LONG),
        ("sample", "RUN"),
        ("analyze", "RUN", "blocks", "--out", f"/tmp/{LONG}"),
        ("analyze", "RUN", "blocks", "--out", "/proc/nothing"),
    ],
    ids=lambda words: " ".join(words)[:50],
)
def test_names_that_no_file_can_have(toy_run: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    from tests.test_cli import CONFIG

    (tmp_path / "config.toml").write_text(CONFIG.replace("text", str(toy_run.parent / "text")))
    stand_ins = {"RUN": str(toy_run), "CONFIG": str(tmp_path / "config.toml")}
    words = tuple(stand_ins.get(word, word) for word in words)
    is_one_sentence(kutta(*words, stdin=b"ba be\n", cwd=tmp_path))


# ---- the last resort ----------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException, *words: str) -> Answer:
    def fail() -> None:
        raise error

    monkeypatch.setattr("kutta.cli.app", fail)
    return kutta(*words)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("embedded null byte"),
        RecursionError("maximum recursion depth exceeded"),
        KeyError("step"),
        RuntimeError("line one\nline two"),
        AssertionError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ExceptionGroup("several", [ValueError("a")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_other_exception_is_a_sentence_with_a_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    answer = failing(monkeypatch, error, "info", "mine.toml")
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
    found = re.search(r"please report this with the file (\S+\.log)", answer.err)
    assert found is not None, answer.err
    log = Path(found[1]).read_text()
    assert f"{type(error).__name__}" in log
    assert "Traceback" in log
    assert "mine.toml" in log
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    again = failing(monkeypatch, error)
    assert (again.code, again.err.count("\n")) == (1, 1)
    shown = failing(monkeypatch, error, "info", "--debug", "mine.toml")
    assert shown.code == 1
    assert "Traceback" in shown.err


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (OSError(30, "Read-only file system", "runs/a"), 2, "Cannot use runs/a: Read-only file"),
        (PermissionError(13, "Permission denied", b"runs/\xff"), 2, "Cannot use runs/"),
        (OSError("odd"), 2, "odd"),
        (MemoryError(), 2, "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2, "not enough memory"),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=str,
)
def test_expected_failures_have_their_codes(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, sentence: str
) -> None:
    answer = failing(monkeypatch, error)
    assert answer.code == code
    assert answer.out == ""
    assert sentence in answer.err
    assert answer.err.count("\n") == bool(sentence)


def test_debug_shows_where_wrong_input_was_found() -> None:
    answer = kutta("info", "nothing", "--debug")
    assert answer.code == 2
    assert "Traceback" in answer.err
    assert answer.err.splitlines()[-1].startswith("kutta: There is no config file")


def test_debug_behind_two_hyphens_is_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["kutta", "info", "--", "--debug"])
    takes: Any = failure._takes_debug
    assert not takes()
    assert sys.argv[-1] == "--debug"


def test_a_read_only_folder_is_one_sentence(tmp_path: Path, toy_run: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    is_one_sentence(kutta("translate", toy_run, "--output", tmp_path / "out", stdin=b"ba\n"))


def test_records_that_are_not_text_are_named(tmp_path: Path, toy_run: Path) -> None:
    import shutil

    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    (run / "metrics.jsonl").write_bytes(b"\xff\n" + (run / "metrics.jsonl").read_bytes())
    is_one_sentence(kutta("train", run), "metrics.jsonl, line 1 is not valid UTF-8")
