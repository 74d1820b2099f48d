"""What the device decides, micro-batches and precision: once, and kept for the whole run."""

import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from kutta.config import Config
from kutta.errors import InputError
from kutta.files import write_text
from kutta.runs import Checkpoint, Run, resolve
from kutta.runs import division as division_module
from kutta.runs.checkpoints import list_checkpoints
from kutta.runs.device import mixed_precision
from kutta.training.run import dry_run_summary, train
from tests.training.test_loop import Configure

CPU, GPU = torch.device("cpu"), torch.device("cuda")
BASE, TINY = "model.d_model=512", "model.d_model=128"


def final(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def test_pieces_are_smaller_batches_of_which_an_update_has_more(
    configure: Configure, silent: Console, tmp_path: Path
) -> None:
    ways = {
        "whole": ("train.batch_tokens=320",),
        "pieces": ("train.batch_tokens=320", "train.pieces=4"),
        "small": ("train.batch_tokens=80", "train.accumulate=4"),
    }
    for name, settings in ways.items():
        train(configure(*settings, f"run={tmp_path / name}", "model.dropout=0.2"), console=silent)
    assert final(tmp_path / "pieces") == final(tmp_path / "small") != final(tmp_path / "whole")


def test_a_run_keeps_its_pieces_where_another_device_would_have_others(
    configure: Configure, silent: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go(name: str, steps: int) -> None:
        settings = ("train.batch_tokens=320", f"train.max_steps={steps}", f"run={tmp_path / name}")
        train(configure(*settings), console=silent)

    monkeypatch.setattr(division_module, "_per_batch", lambda *_: 4)
    go("whole", 8)
    go("parts", 4)
    monkeypatch.setattr(division_module, "_per_batch", lambda *_: 1)
    go("parts", 8)
    assert final(tmp_path / "parts") == final(tmp_path / "whole")


def test_a_run_of_a_version_without_pieces_resumes_without_them(
    configure: Configure, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure("train.max_steps=4")
    train(config, console=silent)
    state = list_checkpoints(Path(config.run))[-1].state
    for folder in (Path(config.run), state.parent):
        (folder / "checksums.json").unlink()
    values = json.loads(state.read_text())
    assert values.pop("pieces") == 1
    state.write_text(json.dumps(values))
    write_text(Path(config.run) / "config.json", config.to_json())  # pieces = 0, undecided
    monkeypatch.setattr(division_module, "_per_batch", lambda *_: 4)
    assert resolve(config, CPU).train.pieces == 1
    for damaged in ("", "[]", "{}", '{"pieces": null}', '{"pieces": "2"}', '{"pieces": 0}'):
        state.write_text(damaged)
        assert resolve(config, CPU).train.pieces == 4
        assert Checkpoint(state.parent).best_step == 0


def test_a_damaged_checkpoint_is_told_of_as_such(configure: Configure, silent: Console) -> None:
    settings = ("train.batch_tokens=2048", "train.lanes=2")
    train(configure(*settings, "train.max_steps=4"), console=silent)
    config = configure(*settings)
    list_checkpoints(Path(config.run))[-1].state.write_text('{"step": ')
    with pytest.raises(InputError, match="is damaged"):
        train(config, console=silent)


def test_the_card_of_a_model_says_in_how_many_pieces(configure: Configure, silent: Console) -> None:
    config = configure("train.pieces=4", "train.max_steps=1")
    train(config, console=silent)
    assert ", 4 micro-batches per batch |" in (Path(config.run) / "README.md").read_text()


def test_a_plain_config_has_work_for_all_threads(configure: Configure) -> None:
    config = configure("train.batch_tokens=2048", "train.threads=2", "train.max_steps=1")
    assert "steps of 1 x 2,048 tokens in 2 micro-batches, seed" in dry_run_summary(config)
    console = Console(record=True, width=200)
    train(config, console=console)
    said = console.export_text()
    assert "updates of 2,048 tokens, " in said
    assert ", 2 lanes, 2 micro-batches per batch" in said


def test_pieces_too_small_for_a_sentence_are_refused(configure: Configure) -> None:
    with pytest.raises(InputError, match=r"max_length = 30 .* train\.pieces = 160 / 6 tokens;"):
        configure("train.pieces=6")


def test_pieces_cannot_change_within_a_run(configure: Configure, silent: Console) -> None:
    train(configure("train.max_steps=4"), console=silent)
    with pytest.raises(InputError, match=r"train\.pieces = 1 there, 2 here"):
        train(configure("train.max_steps=8", "train.pieces=2"), console=silent)


# ---- precision ------------------------------------------------------------------------------

MIXED = "train.precision=mixed"


def pretend(monkeypatch: pytest.MonkeyPatch, *, gpu: bool = False, cpu: str = "") -> None:
    """A GPU that computes in bf16 or does not, and a CPU with these instructions."""
    abilities = {"avx2": True, "avx512_bf16": False, "amx_bf16": False}
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: gpu)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities | {cpu: True})


@pytest.mark.parametrize(
    ("device", "gpu", "cpu", "wanted"),
    [
        (GPU, True, "", "bf16"),
        (GPU, False, "avx512_bf16", "fp16"),  # the CPU beside it has no say
        (CPU, False, "avx512_bf16", "bf16"),
        (CPU, False, "amx_bf16", "bf16"),
        (CPU, False, "bf16", "bf16"),  # as an ARM calls it
        (CPU, True, "avx512_fp16", "fp32"),
        (CPU, True, "", "fp32"),
    ],
)
def test_mixed_precision_is_the_fast_16_bit_arithmetic_of_the_device(
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
    device: torch.device,
    gpu: bool,
    cpu: str,
    wanted: str,
) -> None:
    pretend(monkeypatch, gpu=gpu, cpu=cpu)
    assert mixed_precision(device) == wanted
    assert resolve(configure(MIXED), device).train.precision == wanted
    for asked in ("fp32", "tf32", "bf16", "fp16"):
        assert resolve(configure(f"train.precision={asked}"), device).train.precision == asked


@pytest.mark.parametrize(("cpu", "decided"), [("avx512_bf16", "bf16"), ("", "fp32")])
def test_the_decided_precision_is_in_the_config_of_the_run_and_in_its_hash(
    configure: Configure,
    silent: Console,
    monkeypatch: pytest.MonkeyPatch,
    cpu: str,
    decided: str,
) -> None:
    pretend(monkeypatch, cpu=cpu)
    config, other = configure(MIXED, "train.max_steps=2"), "fp32" if decided == "bf16" else "bf16"
    assert f"seed 1, {decided} on cpu" in dry_run_summary(config)
    train(config, console=silent)
    run = Path(config.run)
    kept = Config.load(run / "config.json")
    assert json.loads((run / "config.json").read_text())["train"]["precision"] == decided
    assert kept == configure(f"train.precision={decided}", "train.max_steps=2", "train.pieces=1")
    explicit = configure(f"train.precision={other}", "train.max_steps=2", "train.pieces=1")
    assert len({kept.hash(), config.hash(), explicit.hash()}) == 3
    assert f"|config:{kept.hash()}|" in Run.load(run).signature
    with pytest.raises(InputError, match=rf'precision = "{decided}" there, "{other}" here'):
        train(configure(f"train.precision={other}", "train.max_steps=4"), console=silent)


def test_a_run_keeps_its_precision_where_another_device_would_have_another(
    configure: Configure, silent: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def go(name: str, steps: int, *settings: str) -> None:
        changes = (f"train.max_steps={steps}", f"run={tmp_path / name}", *settings)
        train(configure(*changes), console=silent)

    go("whole", 8, "train.precision=bf16")
    pretend(monkeypatch, cpu="avx512_bf16")
    go("parts", 4, MIXED)
    pretend(monkeypatch)
    go("parts", 8, MIXED)
    assert final(tmp_path / "parts") == final(tmp_path / "whole")
    assert Config.load(tmp_path / "parts" / "config.json").train.precision == "bf16"
    go("full", 8, MIXED)
    assert final(tmp_path / "full") != final(tmp_path / "whole")


def test_another_config_is_told_as_such_and_not_by_pieces_that_nobody_set(
    configure: Configure, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The micro-batches of the run would not fit the smaller batches of the other config."""
    monkeypatch.setattr(division_module, "_per_batch", lambda *_: 4)
    train(configure("train.batch_tokens=320", "data.max_length=70"), console=silent)
    other = configure("train.batch_tokens=160", "data.max_length=70")
    with pytest.raises(InputError, match=r"run of another config \(train\.batch_tokens = 320"):
        train(other, console=silent)
