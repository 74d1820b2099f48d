"""Little models of every kind, with the tokenizer and the text of the finished toy run."""

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kutta.analysis.subject import Subject, load_subject
from kutta.config import Config
from kutta.data.batches import Batch
from kutta.data.tokenizer import Tokenizers
from kutta.model.transformer import build_model
from kutta.model.weights import own_tensors, write_tensors
from kutta.runs import Run

MakeRun = Callable[..., Path]
MakeSubject = Callable[..., Subject]


def with_config(subject: Subject, **sections: Any) -> Subject:
    """The same subject with other sections in its config."""
    config = subject.config.model_copy(update=sections)
    return replace(subject, run=replace(subject.run, config=config))


def no_track(batches: Sequence[Batch], title: str) -> Iterable[Batch]:
    return batches


@pytest.fixture
def make_run(toy_run: Path, tmp_path: Path) -> MakeRun:
    """A run of other model settings, its weights drawn at random; `source=""` for a language model.

    Learned coefficients are moved away from where they start.
    """

    def make(source: str = "xx", **model: Any) -> Path:
        run = tmp_path / "run"
        shutil.copytree(toy_run, run, ignore=shutil.ignore_patterns("checkpoints"))
        values = json.loads((run / "config.json").read_text())
        values["data"]["source"] = source
        values["model"] |= {"gamma": "tableau", "encoder_layers": 2, "decoder_layers": 1, **model}
        config = Config.parse(values)
        Run(run, config).write_config()
        tokenizers = Tokenizers.load(run)
        torch.manual_seed(5)
        built = build_model(
            config.model, len(tokenizers.source), len(tokenizers.target), tokenizers.shared
        )
        with torch.no_grad():
            for name, parameter in built.named_parameters():
                if ".solvers." in name:
                    parameter += 0.1 * torch.randn_like(parameter)
        write_tensors(own_tensors(built), run / "model.safetensors")
        return run

    return make


@pytest.fixture
def make_subject(make_run: MakeRun) -> MakeSubject:
    """Such a run, loaded with a few sentences."""

    def make(sentences: int = 2, **settings: Any) -> Subject:
        return load_subject(make_run(**settings), sentences, None, None, "cpu")

    return make
