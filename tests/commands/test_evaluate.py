"""`kutta evaluate` and --checkpoint: runs that are still training, and interruptions."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kutta.commands import evaluate as module
from kutta.commands import translate as translating
from kutta.integrity import write_manifest
from kutta.runs import Run
from tests.test_cli import is_one_sentence, kutta


@pytest.fixture
def training(toy_run: Path, tmp_path: Path) -> Path:
    """A run that is still training: checkpoints of steps 4 and 8, no final model."""
    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    (run / "model.safetensors").unlink()
    return run


def signature(run: object, *options: object) -> str:
    answer = kutta("evaluate", run, "--json", *options)
    assert answer.code == 0, answer.err
    return json.loads(answer.out)[0]["signature"]


def test_a_checkpoint_is_chosen_by_name_step_or_folder(training: Path) -> None:
    first, last = Run.load(training).checkpoints()
    assert (first.step, last.step) == (4, 8)
    state = last.read_state()
    state["progress"]["best_step"] = 4  # as if the first were better
    last.state.write_text(json.dumps(state))
    write_manifest(last.path)
    for which, step in (("best", 4), ("last", 8), ("4", 4), ("00000008", 8)):
        assert f"|step:{step}|" in signature(training, "--checkpoint", which)
        chosen = kutta("translate", training, "--checkpoint", which, stdin=b"ba be bi\n")
        folder = training / "checkpoints" / f"step-{step:08d}"
        assert chosen == kutta("translate", folder, stdin=b"ba be bi\n")
        assert chosen.code == 0
    assert (training / "hypotheses" / "step-00000004" / "test.yy").is_file()


def test_a_run_that_is_still_training_is_told_which_option_helps(training: Path) -> None:
    for command in ("translate", "evaluate"):
        is_one_sentence(kutta(command, training), "has not finished", "--checkpoint last")
    shutil.rmtree(training / "checkpoints")
    for which in ("best", "last", "4"):
        answer = kutta("translate", training, "--checkpoint", which)
        is_one_sentence(answer, "has no checkpoints", "wait")


def test_a_checkpoint_that_is_not_there_is_answered_by_one_sentence(training: Path) -> None:
    for which in ("3", "first", "-1", str(training / "checkpoints" / "step-00000004")):
        answer = kutta("translate", training, "--checkpoint", which)
        is_one_sentence(answer, which, "best, last or one of the steps 4, 8")
    folder = training / "checkpoints" / "step-00000004"
    is_one_sentence(kutta("evaluate", folder, "--checkpoint", "best"), "is a checkpoint", "remove")
    for one in Run.load(training).checkpoints():
        state = one.read_state()
        state["progress"]["best_step"] = 0
        one.state.write_text(json.dumps(state))
        write_manifest(one.path)
    is_one_sentence(kutta("evaluate", training, "--checkpoint", "best"), "validated", "last")


@pytest.mark.parametrize(
    ("command", "place"),
    [("translate", translating), ("evaluate", module)],
    ids=["translate", "evaluate"],
)
def test_a_checkpoint_that_training_prunes_meanwhile_is_no_crash(
    command: str, place: Any, training: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = place.Translator.load

    def prune_and_load(*given: Any, **options: Any) -> Any:
        shutil.rmtree(training / "checkpoints" / "step-00000004")
        return load(*given, **options)

    monkeypatch.setattr(place.Translator, "load", prune_and_load)
    answer = kutta(command, training, "--checkpoint", 4, stdin=b"ba\n")
    is_one_sentence(answer, "step-00000004", "choose another")


def test_a_checkpoint_pruned_while_it_is_read_is_no_crash(
    training: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kutta.runs import run as runs

    read_shapes = runs.read_shapes

    def read_and_prune(file: Path) -> Any:  # after the shapes were read, before the weights
        shapes = read_shapes(file)
        shutil.rmtree(training / "checkpoints" / "step-00000004")
        return shapes

    monkeypatch.setattr(runs, "read_shapes", read_and_prune)
    answer = kutta("translate", training, "--checkpoint", 4, stdin=b"ba\n")
    is_one_sentence(answer, "step-00000004", "choose another")


# ---- Ctrl-C ---------------------------------------------------------------------------------


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that presses Ctrl-C when this test set is translated."""

    def press(name: str) -> None:
        evaluate = module.evaluate_set

        def pressed(run: Any, translator: Any, test: Any, *more: Any, **search: Any) -> Any:
            if test.name == name:
                signal.raise_signal(signal.SIGINT)
            return evaluate(run, translator, test, *more, **search)

        monkeypatch.setattr(module, "evaluate_set", pressed)

    return press


def test_ctrl_c_keeps_the_test_sets_that_are_scored(
    toy_run: Path, interrupt: Callable[[str], None]
) -> None:
    whole = json.loads(kutta("evaluate", toy_run, "test", "--json").out)
    interrupt("valid")
    answer = kutta("evaluate", toy_run, "test", "valid", "--json")
    assert (answer.code, json.loads(answer.out)) == (130, whole)
    assert answer.err == "kutta: interrupted; scored: test; not scored: valid\n"
    answer = kutta("evaluate", toy_run, "test", "valid")
    assert "chrF2 = " in answer.out
    interrupt("test")
    answer = kutta("evaluate", toy_run, "test", "valid")
    assert (answer.code, answer.out) == (130, "")
    assert answer.err == "kutta: interrupted; scored: none; not scored: test, valid\n"
