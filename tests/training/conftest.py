"""A made-up language pair, small enough that a whole training takes a fraction of a second."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from kutta.config import Config, TrainConfig
from kutta.config.mistakes import apply_override
from kutta.data.batches import BatchStream
from kutta.model.transformer import build_model
from kutta.runs import open_run, prepare_run
from kutta.runs.division import Machine, divide
from kutta.training.loop import Trainer, make_trainer

NOUNS = ("dog", "cat", "house", "tree", "child", "boat", "river")
VERBS = ("sees", "finds", "likes", "draws", "hears")
SIZES = {"train": 96, "valid": 12, "test": 6}
FIRST = {"train": 0, "valid": 1000, "test": 2000}


def pair(number: int) -> tuple[str, str]:
    """Sentence pair `number`: the target says it backwards, in words that end in -o."""
    words = [NOUNS[number % 7], VERBS[number % 5], NOUNS[number // 3 % 7]]
    for place in range(number * 5 % 6):
        words.append(NOUNS[(number // 11 + place * 3) % 7])
    return " ".join(words), " ".join(word + "o" for word in reversed(words))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train, valid and test in the languages aa and bb."""
    folder = tmp_path_factory.mktemp("corpus")
    for name, size in SIZES.items():
        pairs = [pair(FIRST[name] + number) for number in range(size)]
        for language, lines in zip(("aa", "bb"), zip(*pairs, strict=True), strict=True):
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.fixture
def configure(corpus: Path, tmp_path: Path) -> Callable[..., Config]:
    """`configure("train.lr=0.1", ...)`: a tiny config on the made-up corpus."""

    def make(*overrides: str) -> Config:
        values: dict[str, Any] = {
            "run": str(tmp_path / "run"),
            "data": {
                "dir": str(corpus),
                "source": "aa",
                "target": "bb",
                "test": ["test"],
                "tokenizer": "split",
                "max_length": 30,
            },
            "model": {
                "d_model": 8,
                "ffn": 16,
                "heads": 2,
                "encoder_layers": 1,
                "decoder_layers": 1,
                "solver": "euler",
                "relative_positions": 2,
            },
            "train": {
                "max_steps": 8,
                "batch_tokens": 160,
                "lr": 0.01,
                "warmup": 4,
                "log_every": 1,
                "save_every": 4,
                "valid_bleu": False,
                "final_model": "average",
                "tensorboard": False,
                "device": "cpu",
            },
            "decode": {"average": 2, "beam": 2},
        }
        for override in overrides:
            apply_override(values, override)
        return Config.parse(values)

    return make


@dataclass
class Bench:
    """What `train` puts together, for tests that look at its parts."""

    config: Config
    run: Path
    trainer: Trainer
    stream: BatchStream


HERE = Machine(cores=1, threads=1)


def _uncut(settings: TrainConfig) -> TrainConfig:
    """Batches in one micro-batch, unless more are asked for."""
    return settings.model_copy(update={"pieces": settings.pieces or 1})


@pytest.fixture
def assemble() -> Callable[[Config], Bench]:
    """Prepare the data of a config and make a new trainer and a new stream for it."""

    def make(config: Config) -> Bench:
        opened = open_run(config)
        prepare_run(opened)
        run, tokenizers = opened.path, opened.tokenizers
        rate = config.data.bpe_dropout
        resample = tokenizers.dropout(rate) if rate else None
        store = opened.train_store()
        settings, device = config.train, torch.device("cpu")
        division = divide(config.model_copy(update={"train": _uncut(settings)}), device, HERE)
        stream = BatchStream(store, settings.micro_tokens, settings.seed, resample=resample)
        torch.manual_seed(settings.seed)
        sizes = len(tokenizers.source), len(tokenizers.target)
        model = build_model(config.model, *sizes, tokenizers.shared)
        trainer = make_trainer(model, settings, device, lanes=division.lanes)
        return Bench(config, run, trainer, stream)

    return make


@pytest.fixture
def silent() -> Iterator[Console]:
    """A console that shows nothing and is not a terminal."""
    with open("/dev/null", "w") as nowhere:
        yield Console(file=nowhere)
