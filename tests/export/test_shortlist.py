"""Shortlists: what is learned from pairs, and the output layer of listed tokens."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from kutta.cli import app
from kutta.config import DecodeConfig
from kutta.data.ragged import Ragged
from kutta.data.store import Store, write_chunks
from kutta.data.tokenizer import EOS, SPECIALS
from kutta.errors import InputError
from kutta.export import shortlist as learning
from kutta.export.export import export_run, write_model
from kutta.export.shortlist import learn
from kutta.integrity import write_manifest
from kutta.runs import Run
from kutta.runtime.directory import EXPORT, Exported, Facts
from kutta.runtime.shortlist import SHORTLIST, Shortlist
from kutta.translate import Translator, beam_search
from kutta.translate.exported import ExportedModel
from tests.conftest import toy_config
from tests.export.test_onnx import LINES, SOURCES, VOCABULARY, damage, model_of, tables

EVERY = np.arange(VOCABULARY)


def scorer_of(
    model: Any, folder: Path, precision: str, lists: Any, monkeypatch: pytest.MonkeyPatch
) -> ExportedModel:
    """An exported model with these lists, or with none."""
    folder.mkdir()
    write_model(model, folder, precision, "test", lists=lists)
    found = Exported(folder, Facts.read(folder / EXPORT), toy_config(folder))
    if lists:  # there is no tokenizer here that says how many source tokens there are
        read = Shortlist.read(folder / SHORTLIST, VOCABULARY, VOCABULARY)
        monkeypatch.setitem(found.__dict__, "shortlist", read)
    return ExportedModel(found)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_list_of_the_whole_vocabulary_changes_nothing(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(3, d_model=64, heads=2)
    lists = np.tile(EVERY, (VOCABULARY, 1)), EVERY[:5]
    scorers = [
        scorer_of(model, tmp_path / str(n), precision, given, monkeypatch)
        for n, given in enumerate((None, lists))
    ]
    for one, other in zip(*map(tables, scorers), strict=True):
        assert np.abs(one - other).max() < 1e-5
    expected, found = (beam_search(scorer, SOURCES, DecodeConfig(), 2) for scorer in scorers)
    assert [[h.tokens for h in one] for one in found] == [
        [h.tokens for h in one] for one in expected
    ]


def test_only_listed_tokens_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = np.full((VOCABULARY, 2), EOS)
    candidates[:, 0] = (EVERY + 20) % VOCABULARY
    lists = candidates, np.array([7])
    scorer = scorer_of(model_of(4), tmp_path / "a", "fp32", lists, monkeypatch)
    found = beam_search(scorer, SOURCES[:1], DecodeConfig(), 4)[0]
    allowed = {7, *range(len(SPECIALS)), *((token + 20) % VOCABULARY for token in SOURCES[0])}
    assert {token for h in found for token in h.tokens} <= allowed
    # Where all log-probabilities are asked for, the others are impossible, and they sum to 1.
    for table in tables(scorer):
        assert np.isneginf(table).any()
        assert np.exp(table).sum(axis=1) == pytest.approx(1.0, abs=1e-5)


def test_translations_are_learned_from_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Token n is translated as n + 50, in another order and between tokens that are everywhere.
    random = np.random.default_rng(0)
    rows = [random.integers(10, 40, 6) for _ in range(600)]
    common = np.array([4, 5])
    pairs = [(row, np.concatenate([common, random.permutation(row + 50)])) for row in rows]
    sides = [
        Ragged(np.concatenate(side).astype(np.uint16), np.array(list(map(len, side)), np.int32))
        for side in zip(*pairs, strict=True)
    ]
    write_chunks(tmp_path / "train.arrow", [(sides[0], sides[1])], 100)
    monkeypatch.setattr(learning, "COMBINATIONS", 10_000)  # several chunks
    monkeypatch.setattr(learning, "FREQUENT", 2)
    candidates, frequent = learn(Store.open(tmp_path / "train.arrow"), 100, 100, joint=True)
    assert set(frequent) == {4, 5}
    tokens = np.arange(10, 40)
    assert (candidates[tokens, 0] == tokens + 50).all()
    assert (candidates[tokens, -1] == tokens).all()  # itself, as the vocabulary is joint
    assert (candidates[60, :-1] == EOS).all()  # never seen as a source


@pytest.fixture(scope="module")
def folder(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shortlist") / "toy"
    export_run(Run.load(toy_run), path, "int8", shortlist=True)
    return path


def test_workers_with_a_shortlist_translate_every_line(folder: Path) -> None:
    one, several = Translator.load(folder, workers=1), Translator.load(folder, workers=2)
    assert one.models[0].exported.shortlist is not None
    found = several.translate(LINES)
    assert len(found) == len(LINES)
    assert found[1] == ""


def test_the_command_says_how_many_tokens_are_listed(toy_run: Path, tmp_path: Path) -> None:
    words = ["export", str(toy_run), str(tmp_path / "a"), "--shortlist"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "A sentence lists " in result.output
    assert " exported (" in result.output  # the effect on the score


def damaged(copy: Path, **arrays: Any) -> None:
    with np.load(copy / SHORTLIST) as file:
        content = dict(file)
    np.savez(copy / SHORTLIST, **(content | arrays))
    (copy / "checksums.json").unlink()
    write_manifest(copy)


@pytest.mark.parametrize(
    "arrays",
    [
        {"candidates": np.zeros((3, 2), np.int32)},
        {"frequent": np.array([-1])},
        {"frequent": np.array([10**9])},
        {"weights": np.zeros((3, 3), np.int8)},
        {"candidates": np.array(["a"])},
        {"candidates": np.array([None], object)},
        {"other": np.zeros(3)},
    ],
    ids=str,
)
def test_a_damaged_shortlist_is_refused(
    folder: Path, tmp_path: Path, arrays: dict[str, Any]
) -> None:
    shutil.copytree(folder, tmp_path / "a")
    damaged(tmp_path / "a", **arrays)
    with pytest.raises(InputError, match=SHORTLIST):
        Translator.load(tmp_path / "a").translate(["ba"])


def test_a_compressed_shortlist_is_refused(folder: Path, tmp_path: Path) -> None:
    """It could be a thousand times larger than its file."""
    shutil.copytree(folder, tmp_path / "a")
    with np.load(tmp_path / "a" / SHORTLIST) as file:
        arrays = dict(file)
    np.savez_compressed(tmp_path / "a" / SHORTLIST, **arrays)
    (tmp_path / "a" / "checksums.json").unlink()
    write_manifest(tmp_path / "a")
    with pytest.raises(InputError, match=f"{SHORTLIST} is damaged"):
        Translator.load(tmp_path / "a").translate(["ba"])


def test_a_missing_shortlist_is_refused(folder: Path, tmp_path: Path) -> None:
    def remove(copy: Path) -> None:
        (copy / SHORTLIST).unlink()
        (copy / "checksums.json").unlink()
        write_manifest(copy)

    assert SHORTLIST in damage(folder, tmp_path / "a", remove)
