"""The commands that the suite disturbs, in folders with text and little runs of a second."""

import contextlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kutta.config import Config
from kutta.files import is_temporary
from kutta.integrity import verify
from kutta.training.run import Step, train
from tests.conftest import toy_toml, write_toy_corpus
from tests.faults.children import in_child, run

MEASURED = {"tokens_per_second", "seconds", "from_step", "crc32"}  # they differ from run to run
LOGS = {"train.log"}  # they say when training was resumed
TEXT = "ba be bi\n\ndo du\nbo\n"

CONFIG = toy_toml(
    data={"max_length": 32, "vocab_size": 290},
    model={"d_model": 8, "ffn": 8, "solver": "euler", "gamma": "tableau"},
    train={
        "max_steps": 4,
        "save_every": 1,
        "log_every": 2,
        "valid_every": 2,
        "keep_last": 2,
        "warmup": 2,
        "batch_tokens": 200,
        "valid_bleu": False,
        "final_model": "average",
    },
    decode={"beam": 2, "average": 2, "max_length": 8},
)
EXPERIMENT = """
title = "Two methods"
metric = "chrF2"
better = "higher"
figure = "bars"

[scales.small]
extends = "multi30k-small"
corpus = "toy"
seeds = [1]
data = { dir = "DIR", source = "xx", target = "yy", train = "train", valid = "valid", \
test = ["test"], vocab_size = 290, max_length = 32 }
model = { d_model = 8, ffn = 8, heads = 2, encoder_layers = 1, decoder_layers = 1, dropout = 0.0 }

[scales.small.train]
max_steps = 2
batch_tokens = 200
accumulate = 1
warmup = 1
log_every = 1
valid_every = 2
save_every = 1
keep_last = 2
patience = 0
valid_bleu = false
tensorboard = false
threads = 1

[scales.small.decode]
beam = 1
average = 1
max_length = 8

[columns.one]
name = "one"

[rows.residual]
name = "Residual"
model = { solver = "euler", gamma = "tableau" }

[rows.rk2]
name = "RK2"
against = "residual"
model = { solver = "rk2", gamma = "learned" }
"""


@dataclass(frozen=True)
class Scene:
    """A command in a folder that is as `before` says; the same command is given after a fault."""

    name: str
    words: tuple[str, ...]
    before: str
    done: str = ""  # what it says where there is nothing left to do, as an error


SCENES = (
    Scene("prepare", ("prepare", "config.toml"), "text"),
    Scene("prepare --overwrite", ("prepare", "config.toml", "--overwrite"), "trained"),
    Scene("train", ("train", "config.toml"), "text"),
    Scene("train, resumed", ("train", "config.toml"), "half"),
    Scene(
        "train --overwrite",
        ("train", "config.toml", "--overwrite", "--set", "train.seed=2"),
        "trained",
    ),
    Scene("average", ("average", "run", "--last", "1"), "trained"),
    Scene("export", ("export", "run", "exported"), "trained", "already exists"),
    Scene("evaluate", ("evaluate", "run"), "trained"),
    Scene("translate", ("translate", "run", "in.txt", "--output", "out.txt"), "trained"),
    Scene(
        "translate --resume",
        ("translate", "run", "in.txt", "--output", "out.txt", "--resume"),
        "trained",
        "is complete",
    ),
    Scene("reproduce", ("reproduce", "tiny.toml", "--out", "reproduced"), "text"),
)


def build(home: Path) -> None:
    """Make the folders that scenes begin with: text, half, trained."""
    text = home / "text"
    write_toy_corpus(text / "text", 24)
    (text / "in.txt").write_text(TEXT)
    (text / "config.toml").write_text(CONFIG)
    (text / "tiny.toml").write_text(EXPERIMENT.replace("DIR", "text"))
    half, trained = home / "half", home / "trained"
    shutil.copytree(text, half)
    in_child(lambda: _train_to(half, 2), home)
    shutil.copytree(text, trained)
    _run(trained, home, "train", "config.toml")
    (trained / "run" / "notes.txt").write_text("of the user")
    exported = home / "exported"
    shutil.copytree(trained, exported)
    _run(exported, home, "export", "run", "exported")


def _train_to(place: Path, step: int) -> None:
    """Train until a step, at which training is interrupted."""

    def stop(now: Step) -> None:
        if now.number == step:
            raise KeyError

    with contextlib.chdir(place), contextlib.suppress(KeyError):
        train(Config.load(Path("config.toml")), on_step=stop)


def _run(place: Path, scratch: Path, *words: str) -> None:
    ended = in_child(run(words, place), scratch)
    if ended.code:
        raise RuntimeError(f"{words}: {ended.err}")


def state_of(place: Path) -> dict[str, bytes]:
    """Everything in a folder that has to be the same after a fault, by path.

    The text that runs of a reproduction share has the config of the run that came first.
    """
    return {
        path.relative_to(place).as_posix(): _essence(path)
        for path in sorted(place.rglob("*"))
        if path.is_file() and path.name not in LOGS and path.parent.parent.name != "prepared"
    }


def leftovers(place: Path) -> list[str]:
    """Temporary files."""
    return [path.name for path in place.rglob("*") if is_temporary(path.name)]


def _essence(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".jsonl":
        lines = content.decode().splitlines()
        return "\n".join(json.dumps(_without(json.loads(line))) for line in lines).encode()
    if path.name == "results.json":
        return json.dumps(_without(json.loads(content))).encode()
    return content


def _without(value: Any) -> Any:
    """A value of JSON without what is measured."""
    if isinstance(value, dict):
        return {key: _without(one) for key, one in value.items() if key not in MEASURED}
    return [_without(one) for one in value] if isinstance(value, list) else value


def whole(run_folder: Path) -> str:
    """What is damaged in a run; empty if nothing is."""
    folders = [run_folder, *(run_folder / name for name in ("store", "text"))]
    for folder in (*folders, *(run_folder / "checkpoints").glob("step-*")):
        try:
            verify(folder)
        except Exception as error:
            return str(error)
    return ""
