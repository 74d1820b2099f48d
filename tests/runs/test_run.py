"""A run directory as a type: what it holds, that it can be moved, and runs of earlier versions."""

import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from kutta.commands import evaluate_run
from kutta.config import Config
from kutta.errors import InputError
from kutta.model.weights import read_origin
from kutta.runs import Run, open_run, prepare_run
from kutta.runs.texts import Texts
from kutta.training.run import train
from tests.conftest import toy_config, write_toy_corpus

QUIET = Console(quiet=True)


def made(folder: Path, **changes: dict[str, object]) -> Config:
    """A config in a folder of its own, with its text."""
    write_toy_corpus(folder / "text")
    return toy_config(folder, **changes)


def test_a_half_trained_run_is_moved_and_finished_without_its_text(tmp_path: Path) -> None:
    settings = {"valid_bleu": True, "save_every": 4, "max_steps": 8}
    straight = made(tmp_path / "straight", train=settings)
    train(straight, console=QUIET)
    train(made(tmp_path / "begun", train=settings | {"max_steps": 4}), console=QUIET)
    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    shutil.move(tmp_path / "begun" / "run", moved)
    shutil.rmtree(tmp_path / "begun")
    config = Config.load(moved / "config.json", [f"run={moved}", "train.max_steps=8"])
    train(config, console=QUIET)
    expected, found = Run.load(straight.run), Run.load(moved)
    assert found.final_weights.read_bytes() == expected.final_weights.read_bytes()
    assert [r["bleu"] for r in found.records() if r["kind"] == "valid"] == [
        r["bleu"] for r in expected.records() if r["kind"] == "valid"
    ]
    (ours,) = evaluate_run(moved, [], None, "cpu")
    (theirs,) = evaluate_run(Path(straight.run), [], None, "cpu")
    assert [s.value for s in ours.scores] == [s.value for s in theirs.scores]


def test_the_kept_text_is_the_original_text(tmp_path: Path) -> None:
    config = made(tmp_path)
    run = open_run(config)
    prepare_run(run)
    originals = Texts(None, config.data)
    before = originals.valid(), originals.test("test")
    assert len(before[0]) == 12
    assert len(before[1]) == 8
    shutil.rmtree(tmp_path / "text")
    assert (run.texts.valid(), run.texts.test("test")) == before


def test_a_test_set_that_was_named_later_is_read_where_it_is(tmp_path: Path) -> None:
    run = open_run(made(tmp_path))
    prepare_run(run)
    for language in ("xx", "yy"):
        (tmp_path / "text" / f"new.{language}").write_text("ba\n")
    assert run.texts.test("new") == [("ba", "ba")]
    with pytest.raises(InputError, match="missing"):
        run.texts.test("missing")


def test_names_of_test_sets_never_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for language in ("xx", "yy"):
        for name in ("train", "valid", "outside"):
            (tmp_path / "text" / f"{name}.{language}").write_text("ba be\n")
    config = made(tmp_path, data={"test": ["../text/outside", "test"]})
    for language in ("xx", "yy"):
        (tmp_path / "text" / f"outside.{language}").write_text("ba be\n")
    run = open_run(config)
    run.texts.keep(run.text)
    kept = sorted(path.name for path in (run.path / "text" / "test").iterdir())
    assert kept == [
        "..%2Ftext%2Foutside.source",
        "..%2Ftext%2Foutside.target",
        "test.source",
        "test.target",
    ]
    assert run.texts.test("../text/outside") == [("ba be", "ba be")]


def test_a_run_of_an_earlier_version_reads_its_text_where_it_was(tmp_path: Path) -> None:
    """It has no text/ and no resolved train.pieces; its language model is tied."""
    config = made(tmp_path)
    train(config, console=QUIET)
    run = Run.load(config.run)
    shutil.rmtree(run.path / "text")
    (run.path / "checksums.json").unlink()
    kept = json.loads((run.path / "config.json").read_text())
    del kept["model"]["tie_embeddings"], kept["train"]["final_model"]
    kept["train"]["pieces"] = 0
    (run.path / "config.json").write_text(json.dumps(kept))
    outcome = train(toy_config(tmp_path, train={"max_steps": 12}), console=QUIET)
    assert outcome.step == 12
    assert Run.load(config.run).config.train.pieces == 1
    assert Run.load(config.run).texts.valid() == Texts(None, config.data).valid()


def test_a_checkpoint_is_loaded_as_its_run_with_its_weights(toy_run: Path) -> None:
    run = Run.load(toy_run)
    first = run.checkpoints()[0]
    at_first = Run.load(first.path)
    assert at_first.path == run.path.absolute()
    assert at_first.checkpoint == first
    assert at_first.weights == first.weights
    assert f"|step:{first.step}" in at_first.signature
    assert f"|{read_origin(run.final_weights)}" in run.signature
    assert at_first.outputs("hypotheses") == run.path / "hypotheses" / first.path.name


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no folder"):
        Run.load(tmp_path / "absent")
    with pytest.raises(InputError, match=r"it has no config\.json"):
        Run.load(tmp_path)
    for text in ("[]", "{}", "{", '{"run": "a"}'):
        (tmp_path / "config.json").write_text(text)
        assert not Run.is_at(tmp_path)
