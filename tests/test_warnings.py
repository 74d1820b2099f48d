"""Settings that are probably not meant: one sentence each, at the start, on standard error."""

import re
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import pytest
from rich.console import Console

from kutta.config import Config, known_keys
from kutta.config.load import presets
from kutta.config.warnings import warnings_about
from kutta.training.run import train
from tests.conftest import toy_config, write_toy_corpus
from tests.test_cli import kutta
from tests.test_config import config

LANGUAGE = ("data.source=''", "model.encoder_layers=0")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            ["train.max_steps=600"],
            "train.warmup = 4000 is longer than train.max_steps = 600, so the learning rate never "
            "reaches train.lr = 0.002; raise train.max_steps, or lower train.warmup before "
            "training begins.",
        ),
        (
            ["train.keep_last=3"],
            "decode.average = 5 checkpoints cannot be averaged, because only train.keep_last = 3 "
            "are kept; raise train.keep_last.",
        ),
        (
            [*LANGUAGE, "decode.beam=9"],
            "decode.beam = 9 has no effect: a language model is not searched.",
        ),
        (
            [*LANGUAGE, "decode.no_repeat_ngram=2"],
            "decode.no_repeat_ngram = 2 has no effect: a language model is not searched.",
        ),
        (
            [*LANGUAGE, "data.shared_vocab=false"],
            "data.shared_vocab = false has no effect: a language model has no source.",
        ),
        (
            ["model.solver=euler", "model.stage_parameters=separate"],
            'model.stage_parameters = "separate" has no effect: an Euler step has one stage.',
        ),
        (
            ["model.init=depth-scaled", "train.grow_from=shallow"],
            'model.init = "depth-scaled" has no effect: the weights are those of train.grow_from.',
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else value[-1],
)
def test_a_doubtful_setting_is_told_in_one_sentence(settings: list[str], told: str) -> None:
    assert [*warnings_about(config(*settings))] == [told]


@pytest.mark.parametrize(
    "settings",
    [
        [],
        [*LANGUAGE],
        ["train.max_steps=4000"],
        ["train.keep_last=5"],
        ["train.keep_last=3", "train.final_model=best"],
        ["decode.beam=9", "data.shared_vocab=false"],
        ["model.stage_parameters=separate"],
        ["model.init=depth-scaled"],
    ],
    ids=str,
)
def test_a_good_setting_is_not(settings: list[str]) -> None:
    assert [*warnings_about(config(*settings))] == []


def test_no_preset_is_doubtful() -> None:
    assert {n: w for n in presets() if (w := [*warnings_about(Config.load(n))])} == {}


def test_every_setting_that_a_warning_names_exists() -> None:
    source = Path(__file__).parents[1] / "src" / "kutta" / "config" / "warnings.py"
    named = set(re.findall(r"\b(?:data|model|train|decode)\.[a-z_]+\b", source.read_text()))
    assert named <= {*known_keys()}


def toy(folder: Path, **changes: dict[str, Any]) -> Config:
    write_toy_corpus(folder / "text")
    return toy_config(folder, **{"data": {"vocab_size": 280}} | changes)


def test_training_warns_once_and_not_when_it_has_finished(tmp_path: Path) -> None:
    settings = toy(tmp_path, train={"warmup": 9})
    with pytest.warns(UserWarning, match=r"train\.warmup = 9 is longer") as caught:
        train(settings, console=Console(quiet=True))
    assert len(caught) == 1
    with catch_warnings(record=True) as caught:
        train(settings, console=Console(quiet=True))
        train(toy(tmp_path, train={"warmup": 9, "max_steps": 9}), console=Console(quiet=True))
    assert caught == []


def test_the_command_prints_a_warning_to_standard_error(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(toy(tmp_path, train={"warmup": 9}).to_json())
    answer = kutta("train", "mine.json", cwd=tmp_path)
    assert answer.code == 0
    (line,) = answer.err.splitlines()
    assert line.startswith("kutta: train.warmup = 9 is longer than train.max_steps = 8, so")
    assert "warmup" not in answer.out


def test_sharding_by_one_process_has_no_effect(tmp_path: Path) -> None:
    settings = toy(tmp_path, train={"shard": True, "workers": 1})
    with pytest.warns(UserWarning, match=r"train\.shard = true has no effect: there is one"):
        train(settings, console=Console(quiet=True))


def test_a_vocabulary_that_the_text_does_not_support_is_told_by_prepare_and_train(
    tmp_path: Path,
) -> None:
    """Ten syllables, each in two cases, have fewer than 8000 subwords."""
    settings = toy(tmp_path, data={"vocab_size": 8000})
    (tmp_path / "mine.json").write_text(settings.to_json())
    told = "kutta: data.vocab_size = 8000 is more than the training text supports: it has only "
    answer = kutta("prepare", "mine.json", cwd=tmp_path)
    assert answer.err.startswith(told)
    assert answer.err.count("\n") == 1
    assert kutta("train", "mine.json", cwd=tmp_path).err == "", "said once"
    assert kutta("train", "mine.json", "--overwrite", cwd=tmp_path).err.startswith(told)
