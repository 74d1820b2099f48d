"""Reproductions from start to end, through the command: made, interrupted, resumed, refused."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kutta import files
from kutta.errors import InputError
from kutta.files import locked_folder
from kutta.reproduce import execute
from kutta.reproduce.perform import Result

Kutta = Callable[..., Any]

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(autouse=True)
def one_column(folder: Path) -> None:
    """One column is enough here: fewer runs, less time."""
    text = (folder / "toy.toml").read_text(encoding="utf-8")
    first, second = text.index("[columns.two]"), text.index("[rows.residual]")
    text = text[:first] + text[second:].replace(", two = 11.0", "")
    (folder / "toy.toml").write_text(text, encoding="utf-8")


def change(folder: Path, old: str, new: str) -> None:
    """Change the text of the toy experiment."""
    text = (folder / "toy.toml").read_text(encoding="utf-8")
    assert old in text
    (folder / "toy.toml").write_text(text.replace(old, new), encoding="utf-8")


def results_of(folder: Path) -> dict[str, dict[str, Any]]:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def models_of(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob("runs/*/model.safetensors")}


def is_one_sentence(answer: Any, *parts: str) -> None:
    """Exit code 2 and one line on standard error that names these parts."""
    assert answer.code == 2, answer
    assert answer.err.startswith("kutta: ")
    assert answer.err.count("\n") == 1, answer.err
    for part in parts:
        assert part in answer.err


def wait_for(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    for _ in range(6000):
        if condition():
            return
        assert process.poll() is None, "it ended too early"
        time.sleep(0.01)
    raise AssertionError("waited for a minute")


def test_smoke_from_nothing_to_table_and_figure_and_resumed(kutta: Kutta, folder: Path) -> None:
    answer = kutta("reproduce", "smoke")
    assert answer.code == 0, answer.err
    home = folder / "reproductions" / "smoke-small"
    there = {path.name for path in home.iterdir()}
    assert there == {
        *("plan.json", "results.json", "table.md", "table.txt", "figure.png", "figure.svg"),
        *("runs", "prepared", "text"),
    }
    first, models = results_of(home), models_of(home)
    names = {f"{row}-en-de-s{seed}" for row in ("residual", "rk2") for seed in (1, 2)}
    assert set(first) == set(models) == names
    assert all(entry["score"] > 0 and entry["seconds"] > 0 for entry in first.values())
    assert all(entry["from_step"] == 0 and entry["steps"] == 60 for entry in first.values())
    assert first["rk2-en-de-s1"]["parameters"] == first["residual-en-de-s1"]["parameters"] + 4
    mean = sum(first[f"rk2-en-de-s{seed}"]["score"] for seed in (1, 2)) / 2
    for form in (answer.out, (home / "table.txt").read_text(), (home / "table.md").read_text()):
        assert f"{mean:.2f} ± " in form
        assert "Missing" not in form
    for name in names:  # every run keeps its config, seed and log
        run = home / "runs" / name
        assert f'"seed": {name[-1]}' in (run / "config.json").read_text()
        assert (run / "train.log").is_file()
        assert (run / "metrics.jsonl").is_file()
    # The text was prepared once: all runs have the same file under another name.
    assert len({(home / "runs" / name / "store/train.arrow").stat().st_ino for name in names}) == 1

    # A run that lost its model and its last checkpoint, and one that was trained but not scored.
    cut, unscored = home / "runs" / "rk2-en-de-s2", "residual-en-de-s1"
    (cut / "model.safetensors").unlink()
    (cut / "checkpoints" / "step-00000060").rename(folder / "away")
    (home / "results.json").write_text(
        json.dumps({name: entry for name, entry in first.items() if name != unscored})
    )
    untouched = (home / "runs/rk2-en-de-s1/model.safetensors").stat().st_mtime_ns
    again = kutta("reproduce", "smoke")
    assert again.code == 0, again.err
    assert "2 of 4 runs to do" in again.out
    second = results_of(home)
    assert models_of(home) == models  # to the bit
    assert {n: e["score"] for n, e in second.items()} == {n: e["score"] for n, e in first.items()}
    assert second["rk2-en-de-s2"]["from_step"] == 30
    assert second[unscored]["from_step"] == 60
    assert (home / "runs/rk2-en-de-s1/model.safetensors").stat().st_mtime_ns == untouched
    assert "0 of 4 runs to do" in kutta("reproduce", "smoke").out


def test_a_killed_reproduction_resumes_to_the_same_models(kutta: Kutta, folder: Path) -> None:
    change(folder, "seeds = [1]", "seeds = [1]\ntrain = { max_steps = 40, save_every = 10 }")
    command = [sys.executable, "-m", "kutta", "reproduce", "toy.toml", "--out", "killed"]
    process = subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    home = folder / "killed" / "toy-small"
    wait_for((home / "runs/rk2-one-s1/checkpoints/step-00000010").exists, process)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert set(results_of(home)) == {"residual-one-s1"}
    assert "Missing: 1 of 2 runs: rk2-one-s1" in (home / "table.txt").read_text()
    before = (home / "runs/residual-one-s1/model.safetensors").stat().st_mtime_ns
    again = kutta("reproduce", "toy.toml", "--out", "killed")
    assert again.code == 0, again.err
    assert "1 of 2 runs to do" in again.out
    assert results_of(home)["rk2-one-s1"]["from_step"] >= 10
    assert (home / "runs/residual-one-s1/model.safetensors").stat().st_mtime_ns == before
    assert kutta("reproduce", "toy.toml", "--out", "whole").code == 0
    assert models_of(home) == models_of(folder / "whole" / "toy-small")


def test_side_by_side_gives_the_same_models_and_numbers(kutta: Kutta, folder: Path) -> None:
    answer = kutta("reproduce", "toy.toml", "--jobs", 2, "--json")
    assert answer.code == 0, answer.err
    (outcome,) = json.loads(answer.out)
    assert outcome["missing"] == []
    assert [len(cell["scores"]) for cell in outcome["cells"]] == [1, 1]
    assert outcome["cells"][1]["published"] == 12.5
    alone = kutta("reproduce", "toy.toml", "--json", "--out", "alone")
    assert json.loads(alone.out)[0]["cells"] == outcome["cells"]
    home = folder / "reproductions" / "toy-small"
    assert models_of(home) == models_of(folder / "alone" / "toy-small")


@pytest.mark.slow
def test_side_by_side_runs_save_and_stop_when_asked(folder: Path) -> None:
    change(folder, "seeds = [1]", "seeds = [1]\ntrain = { max_steps = 100000 }")
    process = subprocess.Popen(
        [sys.executable, "-m", "kutta", "reproduce", "toy.toml", "--jobs", "2"],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    home = folder / "reproductions" / "toy-small"
    logs = [home / "runs" / name / "train.log" for name in ("residual-one-s1", "rk2-one-s1")]
    wait_for(lambda: all(log.is_file() and "step 1 " in log.read_text() for log in logs), process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"stopped: 0 of 2 runs done; run the same command to resume" in out
    assert b"Traceback" not in err
    assert all("run the same command to resume" in log.read_text() for log in logs)
    with execute.locked_reproduction(home):
        pass  # nobody is left who holds the lock


def test_a_run_that_fails_does_not_keep_the_others_from_being_made(
    kutta: Kutta, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = execute.perform

    def perform(config: Any, metric: str, console: Any) -> Result | None:
        if config.model.solver == "rk2":
            raise InputError("The loss was not finite for 20 consecutive steps.")
        return real(config, metric, console)

    monkeypatch.setattr(execute, "perform", perform)
    answer = kutta("reproduce", "toy.toml")
    is_one_sentence(answer, "rk2-one-s1", "not finite", "Run the same command to retry")
    home = folder / "reproductions" / "toy-small"
    assert set(results_of(home)) == {"residual-one-s1"}
    assert "Missing: 1 of 2 runs" in (home / "table.md").read_text()
    monkeypatch.setattr(execute, "perform", real)
    assert "1 of 2 runs to do" in kutta("reproduce", "toy.toml").out


def test_seeds_can_be_added(kutta: Kutta, folder: Path) -> None:
    home = folder / "reproductions" / "toy-small"
    assert kutta("reproduce", "toy.toml", "--seeds", "7").code == 0
    answer = kutta("reproduce", "toy.toml", "--seeds", "8")
    assert "2 of 4 runs to do" in answer.out
    assert {name[-2:] for name in results_of(home)} == {"s7", "s8"}
    assert " ± " in (home / "table.md").read_text()


def test_a_dry_run_shows_the_runs_and_writes_nothing(kutta: Kutta, folder: Path) -> None:
    answer = kutta("reproduce", "toy.toml", "--dry-run")
    assert answer.code == 0, answer.err
    for part in ("residual-one", "rk2-one", "learned", "2 of 2 runs to do", "FLOP"):
        assert part in answer.out
    (outcome,) = json.loads(kutta("reproduce", "toy.toml", "--dry-run", "--json").out)
    assert [run["name"] for run in outcome["runs"]] == ["residual-one-s1", "rk2-one-s1"]
    assert not (folder / "reproductions").exists()
    small = kutta("reproduce", "ptb", "--scale", "small", "--dry-run")
    assert small.code == 0, small.err
    assert "Note: The text of ptb is missing" in small.out
    paper = kutta("reproduce", "en-ro", "--scale", "paper", "--dry-run")
    assert "GPU-days if a GPU sustains 40 TFLOP/s" in paper.out


def test_the_list_needs_no_name(kutta: Kutta) -> None:
    answer = kutta("reproduce")
    assert answer.code == 0
    assert answer.out == kutta("reproduce", "list").out
    for name in ("main", "en-ro", "efficiency", "methods", "field", "depth", "size", "smoke"):
        assert name in answer.out
    listed = json.loads(kutta("reproduce", "--json").out)
    assert ("ptb", "perplexity") in [(one["name"], one["metric"]) for one in listed]


def test_wrong_words_are_answered_by_one_sentence(kutta: Kutta, folder: Path) -> None:
    is_one_sentence(kutta("reproduce", "methds"), "methds", "did you mean methods")
    is_one_sentence(kutta("reproduce", "main", "--seeds", "1,x"), "1,x", "--seeds 1,2,3")
    is_one_sentence(kutta("reproduce", "main", "--seeds", "-1"), "-1")
    is_one_sentence(kutta("reproduce", "toy.toml", "--out", "toy.toml"), "--out", "a file")
    is_one_sentence(kutta("reproduce", "toy.toml", "--out", "/proc/none"), "Cannot write")
    is_one_sentence(kutta("reproduce", "main"), "data/multi30k", "kutta data get multi30k")
    is_one_sentence(kutta("reproduce", "smoke", "--scale", "paper"), "no scale paper")
    (folder / "copy").mkdir()
    (folder / "copy" / "toy.toml").write_text((folder / "toy.toml").read_text())
    (folder / "copy" / "toy-preset.toml").write_text((folder / "toy-preset.toml").read_text())
    is_one_sentence(kutta("reproduce", "toy.toml", "copy/toy.toml"), "toy-small", "rename")
    assert not (folder / "reproductions").exists()  # checked before anything is begun
    assert kutta("reproduce", "toy.toml", "--seeds", "1").code == 0
    change(folder, '"learned"', '"ones"')
    is_one_sentence(
        kutta("reproduce", "toy.toml"), "model.gamma", "'learned' there and 'ones' here", "--out"
    )


def test_two_commands_do_not_work_in_one_folder(kutta: Kutta, folder: Path) -> None:
    home = folder / "reproductions" / "toy-small"
    home.mkdir(parents=True)
    with locked_folder(home, "not here"):
        is_one_sentence(kutta("reproduce", "toy.toml"), "Another process", "toy-small")
    assert not (home / "runs").exists()


def test_a_system_without_locks_works_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(files, "fcntl", None)
    with execute.locked_reproduction(tmp_path), execute.locked_reproduction(tmp_path) as handle:
        assert handle
