"""A run that was trained further since its final model was made."""

import shutil
from pathlib import Path

import pytest

from kutta.integrity import MANIFEST
from kutta.runs import Run
from tests.test_cli import kutta


@pytest.fixture
def run(toy_run: Path, tmp_path: Path) -> Path:
    """Finished at step 8, then resumed and interrupted at step 12."""
    shutil.copytree(toy_run, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    shutil.copytree(checkpoints / "step-00000008", checkpoints / "step-00000012")
    return tmp_path / "run"


def told(run: Path) -> str:
    return (
        f"kutta: {run}/model.safetensors was made at step 8, but training has since reached step "
        f"12; use that checkpoint (--checkpoint last, or {run}/checkpoints/step-00000012), or run "
        f"`kutta train {run}` to finish.\n"
    )


def test_the_older_model_is_used_with_a_remark(run: Path, toy_run: Path) -> None:
    text = b"ba be\n"
    answer = kutta("translate", run, stdin=text)
    assert (answer.code, answer.err) == (0, told(run))
    assert answer.out == kutta("translate", toy_run, stdin=text).out


def test_evaluate_says_so_as_well(run: Path) -> None:
    assert kutta("evaluate", run).err == told(run)


def test_a_checkpoint_is_used_without_one(run: Path) -> None:
    assert kutta("translate", run, "--checkpoint", "last", stdin=b"ba\n").err == ""
    assert kutta("translate", run / "checkpoints/step-00000012", stdin=b"ba\n").err == ""


def test_a_finished_run_has_none(toy_run: Path) -> None:
    assert Run.load(toy_run).passed() == ""


def test_the_run_has_not_finished(run: Path, toy_run: Path) -> None:
    assert "training finished               yes\n" in kutta("info", toy_run).out
    assert "training finished               no\n" in kutta("info", run).out


def test_a_new_average_is_as_new_as_its_checkpoints(run: Path) -> None:
    kutta("average", run, "--last", 2)
    assert kutta("translate", run, stdin=b"ba\n").err == ""


def test_damaged_records_do_not_stop_a_translation(run: Path) -> None:
    (run / MANIFEST).unlink()
    (run / "metrics.jsonl").write_text("[]\n{}\n")
    answer = kutta("translate", run, stdin=b"ba\n")
    assert (answer.code, answer.err) == (0, "")
