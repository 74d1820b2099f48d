"""Fixtures shared by all tests."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from rich.console import Console

from kutta.config import Config
from kutta.training.run import train

ROOT = Path(__file__).parent.parent

# The machine may be busy: a slow example is not a wrong one.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real corpora beside the checkout; tests that need them skip where they are absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real corpora (../shared/data) are not on this machine")
    return folder


def write_toy_corpus(folder: Path, train_pairs: int = 120) -> None:
    """Sentences of a few invented words; the other language says them backwards, in capitals."""
    words = ["ba", "be", "bi", "bo", "bu", "da", "de", "di", "do", "du"]
    random_words = random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train_pairs), ("valid", 12), ("test", 8)):
        lines = [random_words.choices(words, k=random_words.randint(2, 6)) for _ in range(count)]
        texts = {
            "xx": [" ".join(line) for line in lines],
            "yy": [" ".join(reversed(line)).upper() for line in lines],
        }
        for language, text in texts.items():
            (folder / f"{name}.{language}").write_text("\n".join(text) + "\n", encoding="utf-8")


def toy_values(**changes: Any) -> dict[str, Any]:
    """Settings of a run that takes a second, with paths as in a folder of one's own.

    `changes` are by section; those of a section are merged into it.
    """
    values: dict[str, Any] = {
        "run": "run",
        "data": {
            "dir": "text",
            "source": "xx",
            "target": "yy",
            "test": ["test"],
            "vocab_size": 300,
        },
        "model": {
            "d_model": 16,
            "ffn": 32,
            "heads": 2,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "solver": "rk2",
            "gamma": "learned",
        },
        "train": {
            "max_steps": 8,
            "batch_tokens": 300,
            "warmup": 4,
            "save_every": 4,
            "log_every": 2,
            "tensorboard": False,
            "threads": 1,
        },
        "decode": {"beam": 2, "average": 2},
    }
    for name, change in changes.items():
        values[name] = values[name] | change if isinstance(change, dict) else change
    return values


def toy_config(folder: Path, **changes: dict[str, Any]) -> Config:
    """The settings above for a run and its text in `folder`."""
    values = toy_values(run=str(folder / "run"), data={"dir": str(folder / "text")})
    for section, settings_of in changes.items():
        values[section] = values[section] | settings_of
    return Config.parse(values)


def toy_toml(**changes: Any) -> str:
    """The settings above as a config file."""
    return as_toml(toy_values(**changes))


def as_toml(values: dict[str, Any]) -> str:
    """A config in TOML. Its values are written as in JSON, which is the same for all of these."""
    own = {key: one for key, one in values.items() if not isinstance(one, dict)}
    lines = [f"{key} = {json.dumps(one)}" for key, one in own.items()]
    for section in (key for key in values if key not in own):
        lines += [f"[{section}]"]
        lines += [f"{key} = {json.dumps(one)}" for key, one in values[section].items()]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished little run; beside it its text and its config as TOML. Read only."""
    folder = tmp_path_factory.mktemp("toy")
    write_toy_corpus(folder / "text")
    outcome = train(toy_config(folder), console=Console(quiet=True))
    return outcome.run
