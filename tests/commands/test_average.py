"""`kutta average`: the mean of checkpoints, and one sentence for what has no mean."""

import re
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file, save_file

from kutta import box
from kutta.model.weights import read_tensors, write_int8, write_tensors
from kutta.runs import Run, locked
from tests.test_cli import is_one_sentence, kutta


@pytest.fixture
def run(toy_run: Path, tmp_path: Path) -> Path:
    """A finished run with the checkpoints 4 and 8."""
    shutil.copytree(toy_run, tmp_path / "run")
    return tmp_path / "run"


def weights(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}" / "model.safetensors"


def test_the_average_is_the_mean(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "mean.safetensors"
    answer = kutta("average", run, "--output", out)
    assert answer.out == f"{out}: the average of step-00000004, step-00000008\n"
    first, second, mean = (load_file(path) for path in (weights(run, 4), weights(run, 8), out))
    for name, tensor in mean.items():
        expected = (first[name].double() + second[name].double()) / 2
        torch.testing.assert_close(tensor, expected.float(), rtol=0, atol=0)
    assert kutta("average", run, "--output", out).code == 0  # our own file is replaced


def test_one_checkpoint_is_said_to_be_no_average(run: Path) -> None:
    answer = kutta("average", run, "--step", 4)
    final = run / "model.safetensors"
    assert answer.out == f"{final}: the weights of step-00000004\n"
    assert load_file(final).keys() == load_file(weights(run, 4)).keys()
    torch.testing.assert_close(load_file(final), load_file(weights(run, 4)), rtol=0, atol=0)


def test_the_card_describes_the_average(run: Path) -> None:
    """With the numbers of these weights, or without any where they were not validated."""
    parameters = re.search(r"[\d,]+ parameters", (run / "README.md").read_text())
    kutta("average", run, "--last", 2)
    card = (run / "README.md").read_text()
    assert "| weights | the average of step-00000004, step-00000008 |" in card
    assert parameters
    assert parameters[0] in card
    assert not re.search("perplexity|metrics|candidate", card)
    kutta("average", run, "--step", 8)
    (valid,) = [
        one for one in Run.load(run).records() if one["kind"] == "valid" and one["step"] == 8
    ]
    card = (run / "README.md").read_text()
    assert f"| validation | perplexity {valid['perplexity']:.2f}" in card


def test_training_names_the_average(run: Path) -> None:
    """Of a finished run, instead of the model that training had made."""
    kutta("average", run, "--step", 4)
    kutta("average", run, "--last", 2)
    records = [one for one in Run.load(run).records() if one["kind"] == "average"]
    made = "the average of step-00000004, step-00000008"
    assert [(one["step"], one["weights"]) for one in records] == [(8, made)]
    assert f"has already finished at step 8 (final model: {made});" in kutta("train", run).out


MISTAKES = {
    ("--last", 3): ("--last 3", "has 2 checkpoints", "choose 1 to 2"),
    ("--last", 0): ("--last 0", "choose 1 to 2"),
    ("--last", -1): ("--last -1", "choose 1 to 2"),
    ("--last", 1, "--step", 4): ("--last and --step", "one of them"),
    ("--step", 4, "--step", 4): ("--step 4", "twice"),
    ("--step", 3): ("step 3", "4, 8"),
    ("--output", "mean.pt"): ("mean.pt", ".safetensors"),
    ("--output", "folder"): ("folder", ".safetensors"),
    ("--output", "taken.safetensors"): ("taken.safetensors", "not written by Kutta"),
    ("--output", "other.safetensors"): ("other.safetensors", "not written by Kutta"),
    ("--output", "folder.safetensors"): ("folder.safetensors", "not written by Kutta"),
    ("--output", "run/checkpoints/step-00000004/model.safetensors"): ("checkpoints", "else"),
}


@pytest.mark.parametrize("options", MISTAKES, ids=str)
def test_what_cannot_be_averaged_is_answered_by_one_sentence(
    options: tuple[object, ...], run: Path
) -> None:
    (run.parent / "folder").mkdir()
    (run.parent / "folder.safetensors").mkdir()
    (run.parent / "taken.safetensors").write_text("years of work")
    save_file({"a": torch.zeros(2)}, run.parent / "other.safetensors")
    before = (run / "model.safetensors").read_bytes(), weights(run, 4).read_bytes()
    is_one_sentence(kutta("average", "run", *options, cwd=run.parent), *MISTAKES[options])
    assert ((run / "model.safetensors").read_bytes(), weights(run, 4).read_bytes()) == before
    assert (run.parent / "taken.safetensors").read_text() == "years of work"


def test_checkpoints_that_do_not_fit_are_named(run: Path) -> None:
    good = read_tensors(weights(run, 8))
    name = next(iter(good))
    write_tensors(
        {**good, name: good[name].repeat(2, *[1] * (good[name].dim() - 1))}, weights(run, 8)
    )
    is_one_sentence(kutta("average", run), "different models", "step-00000008")
    write_tensors({**good, name: good[name].long()}, weights(run, 8))
    is_one_sentence(kutta("average", run), f"the tensor {name} of integers")
    write_int8({**good, "large": torch.rand(80, 80)}, weights(run, 8))
    is_one_sentence(kutta("average", run, "--step", 8), "8 bits")


def test_runs_without_checkpoints_and_checkpoints_themselves_are_refused(run: Path) -> None:
    is_one_sentence(kutta("average", weights(run, 4).parent), "is one checkpoint", str(run))
    shutil.rmtree(run / "checkpoints")
    is_one_sentence(kutta("average", run), "has no checkpoints", "not saved any")
    (run.parent / "card.json").touch()
    with patch.object(box, "BOX", run.parent):
        is_one_sentence(kutta("average", run), "is a finished model")


def test_nothing_is_written_into_the_box(run: Path) -> None:
    with patch.object(box, "BOX", run.parent):
        answer = kutta("average", run, "--output", run.parent / "new.safetensors")
        is_one_sentence(answer, "model in the box", "--output")


def test_the_final_model_is_not_replaced_under_a_training(run: Path, tmp_path: Path) -> None:
    with locked(run):
        is_one_sentence(kutta("average", run), "Another process is training")
        assert kutta("average", run, "--output", tmp_path / "mean.safetensors").code == 0
    assert Run.load(run).signature  # still readable
