"""The Python interface: what is imported, what it looks like, what wrong calls are told."""

import inspect
import pydoc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kutta
from kutta.config import Config, DataConfig, DecodeConfig, ModelConfig, Sampling, TrainConfig
from kutta.errors import InputError
from kutta.translate import Translator

DATA = DataConfig(dir="text", source="en", target="de")


@pytest.mark.parametrize(
    "code",
    [
        "import kutta; dir(kutta); kutta.__version__",
        "from kutta import Config, InputError, TABLEAUX; Config.load('multi30k-rk2')",
        "main('--help')",
        "main('train', '--help')",
        "main('models')",
        "main('info', '--list')",
    ],
)
def test_torch_is_not_loaded_where_it_is_not_needed(code: str) -> None:
    program = f"""
import contextlib, sys
def main(*words):
    from kutta.cli import main
    sys.argv = ["kutta", *words]
    with contextlib.suppress(SystemExit):
        main()
{code}
sys.exit("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_every_public_name_is_there_and_listed() -> None:
    for name in kutta.__all__:
        assert getattr(kutta, name) is not None
    assert set(kutta.__all__) <= set(dir(kutta))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = kutta.trian


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Config(run="r", data=DATA, trian={}), "there is no setting trian; did you mean"),
        (
            lambda: Config(run="r", data=DATA, train={"lr": "fast"}),
            'train.lr = "fast" is not valid',
        ),
        (
            lambda: Config(run="r", data=DATA, train={"lrr": 1}),
            "no setting train.lrr; did you mean train.lr?",
        ),
        (lambda: Config(run="r", data=DATA, model=3), "model = 3 is not valid: it is a section"),
        (lambda: Config(run=3, data=DATA), "run = 3 is not valid: write text, in quotes."),
        (lambda: Config(run="r"), "the section [data] is missing; add it."),
        (lambda: Config("mine.toml"), "Config takes settings by name, e.g. run=..., not 'mine."),
        (lambda: Config("mine.toml"), "; Config.load reads a file or a preset."),
        (
            lambda: Config(run="r", data=DATA, train=TrainConfig(warmup=0)),
            "warmup = 0 is not valid",
        ),
        (lambda: TrainConfig(max_step=3), "there is no setting max_step; did you mean max_steps?"),
        (lambda: ModelConfig(heads=3), "d_model = 512 is not a multiple of heads = 3"),
        (lambda: DecodeConfig(4), "DecodeConfig takes settings by name, e.g. beam=..., not 4."),
        (lambda: Sampling(top_q=1), "there is no setting top_q; did you mean top_p"),
    ],
)
def test_a_wrong_config_gets_one_sentence(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sections_may_be_given_as_dictionaries() -> None:
    plain: dict[str, Any] = {"run": "r", "data": {"dir": "text", "source": "en", "target": "de"}}
    assert Config(**plain, train={"max_steps": 9}) == Config(
        run="r", data=DATA, train=TrainConfig(max_steps=9)
    )


def test_a_config_shows_what_is_not_a_default() -> None:
    config = Config(run="runs/mine", data=DATA, train=TrainConfig(max_steps=9))
    shown = (
        "Config(run='runs/mine', data=DataConfig(dir='text', source='en', target='de'), "
        "train=TrainConfig(max_steps=9))"
    )
    assert repr(config) == str(config) == shown
    assert eval(shown) == config


def test_signatures_are_readable() -> None:
    fields = ["run", "data", "model", "train", "decode"]
    shown = inspect.signature(Config)
    assert [*shown.parameters] == fields
    assert "model: kutta.config.model.ModelConfig = ModelConfig()" in str(shown)
    assert [*inspect.signature(TrainConfig).parameters] == [*TrainConfig.model_fields]
    assert "max_steps" in pydoc.render_doc(TrainConfig)
    assert "beam: int | None = None" in pydoc.render_doc(Translator.translate)


@pytest.mark.parametrize("runs", [3, None, [3], {Path("a")}])
def test_a_translator_is_loaded_from_paths(runs: Any) -> None:
    with pytest.raises(InputError, match="Give the path of a run, or a list of paths, not"):
        Translator.load(runs)
