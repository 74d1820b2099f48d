"""A flipped bit in any file is reported with the name of the file, or changes nothing."""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from kutta.config import Config
from kutta.errors import InputError
from kutta.runs import Run
from kutta.training.run import train
from kutta.translate import Translator
from tests.conftest import toy_config
from tests.faults.faults import flip, some_bits

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def run(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the finished run, to be damaged and mended."""
    folder = tmp_path_factory.mktemp("flips") / "run"
    shutil.copytree(toy_run, folder)
    return folder


def translated(run: Path) -> list[str]:
    return Translator.load(run).translate(["ba be bi", "do du"])


def pairs(run: Path, name: str) -> list[list[int]]:
    """Everything that training reads from a store."""
    store = getattr(Run.load(run), f"{name}_store")()
    found = [side.tolist() for pair in store.gather(range(len(store))) for side in pair]
    return [*found, *(lengths.tolist() for lengths in store.lengths())]


def validation(run: Path) -> list[tuple[str, str]]:
    return Run.load(run).texts.valid()


def scored(run: Path) -> list[tuple[str, str]]:
    return Run.load(run).texts.test("test")


def report(run: Path) -> object:
    return Run.load(run).read_report()


def best(run: Path) -> list[bytes]:
    """The weights of the best checkpoint."""
    model = Run.load(run, checkpoint="best").load_model()
    return [tensor.numpy().tobytes() for tensor in model.state_dict().values()]


READERS: dict[str, Callable[[Path], object]] = {
    "config.json": translated,
    "tokenizer.model": translated,
    "model.safetensors": translated,
    "checksums.json": translated,
    "store/train.arrow": lambda run: pairs(run, "train"),
    "store/valid.arrow": lambda run: pairs(run, "valid"),
    "store/report.json": report,
    "metrics.jsonl": lambda run: Run.load(run).records(),
    "store/checksums.json": lambda run: pairs(run, "train"),
    "text/valid.source": validation,
    "text/valid.target": validation,
    "text/test/test.source": scored,
    "text/checksums.json": validation,
    "checkpoints/step-00000008/state.json": best,
    "checkpoints/step-00000008/model.safetensors": best,
    "checkpoints/step-00000008/checksums.json": best,
}


@pytest.mark.parametrize("name", READERS)
def test_a_flipped_bit_is_never_read(run: Path, name: str) -> None:
    path, read = run / name, READERS[name]
    intact = read(run)
    refused = 0
    for bit in some_bits(path, 12):
        flip(path, bit)
        try:
            found = read(run)
        except InputError as error:
            refused += 1
            told = str(error)
            assert path.name in told or path.parent.name in told, (told, bit)
            assert "\n" not in told
        else:
            assert found == intact, bit
        finally:
            flip(path, bit)
    assert refused >= 9, "hardly any flip was noticed"
    assert read(run) == intact


def test_the_suite_notices_a_flip_where_nothing_is_checked(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the check switched off, flips in the weights change translations without a word."""
    monkeypatch.setattr("kutta.model.weights.check", lambda *_: None)
    path, read = run / "model.safetensors", Run.load
    intact = {n: t.numpy().copy() for n, t in read(run).load_model().state_dict().items()}
    differ = 0
    for bit in some_bits(path, 12):
        flip(path, bit)
        try:
            found = read(run).load_model().state_dict()
            differ += any(not np.array_equal(found[n].numpy(), t) for n, t in intact.items())
        except InputError:
            pass
        finally:
            flip(path, bit)
    assert differ > 0


@pytest.fixture(scope="module")
def interrupted(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A run with checkpoints of steps 4 and 8 that is to be trained to 10, and its final model."""
    folder = tmp_path_factory.mktemp("interrupted")
    shutil.copytree(toy_run, folder / "run")
    shutil.copytree(toy_run, folder / "straight")
    (folder / "run" / "model.safetensors").unlink()
    model = train(config_of(folder / "straight"), console=QUIET).run / "model.safetensors"
    return folder / "run", model.read_bytes()


def config_of(run: Path) -> Config:
    values = Config.load(run).model_dump() | {"run": str(run)}
    values["train"] |= {"max_steps": 10}
    return Config.parse(values)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "state.json", "checksums.json"]
)
def test_training_survives_a_flipped_bit_in_its_newest_checkpoint(
    interrupted: tuple[Path, bytes], name: str, tmp_path: Path
) -> None:
    begun, model = interrupted
    shutil.copytree(begun, tmp_path / "run")
    path = tmp_path / "run" / "checkpoints" / "step-00000008" / name
    flip(path, list(some_bits(path, 3))[-1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = train(config_of(tmp_path / "run"), console=QUIET)
    assert (outcome.run / "model.safetensors").read_bytes() == model
    told = [str(one.message) for one in caught]
    assert any("step-00000008 is damaged" in one and "4 steps again" in one for one in told), told


def test_a_flipped_bit_in_the_final_model_is_mended_by_training(
    toy_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    path = run / "model.safetensors"
    intact = path.read_bytes()
    flip(path, 8 * len(intact) - 3)
    values = toy_config(toy_run.parent).model_dump() | {"run": str(run)}
    with pytest.warns(UserWarning, match="model.safetensors is damaged.*made again from"):
        train(Config.parse(values), console=QUIET)
    assert path.read_bytes() == intact
