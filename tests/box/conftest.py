"""A box with one little model, made as the real ones are."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from kutta.training.run import train
from tests.conftest import toy_config, write_toy_corpus

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from ship import ship


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run from xx to yy whose matrices are large enough for 8 bits. Read only."""
    folder = tmp_path_factory.mktemp("finished")
    write_toy_corpus(folder / "tatoeba-toy")
    config = toy_config(
        folder,
        data={"dir": str(folder / "tatoeba-toy")},
        model={"d_model": 64, "ffn": 96},
        train={"max_steps": 60, "lr": 0.01, "save_every": 30},
    )
    return train(config, console=Console(quiet=True)).run


@pytest.fixture(scope="session")
def full_box(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A box with the model xx-yy. Read only."""
    box = tmp_path_factory.mktemp("box")
    ship([finished], box)
    return box


@pytest.fixture
def box(full_box: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Kutta with this box, in an empty current directory."""
    monkeypatch.setattr("kutta.box.BOX", full_box)
    monkeypatch.chdir(tmp_path)
    return full_box


@pytest.fixture
def empty_box(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Kutta with nothing in the box, in an empty current directory."""
    (tmp_path / "box").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setattr("kutta.box.BOX", tmp_path / "box")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "box"
