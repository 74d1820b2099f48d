"""A run from start to end: it resumes exactly, refuses what is not its own, and loses nothing."""

import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.numpy import load_file

from kutta import files
from kutta.config import Config
from kutta.data.tokenizer import Tokenizers
from kutta.errors import InputError
from kutta.files import remove
from kutta.metrics import Score
from kutta.model.transformer import build_model
from kutta.model.weights import read_origin
from kutta.runs import Run, locked, open_run
from kutta.runs.checkpoints import list_checkpoints
from kutta.training import run as run_module
from kutta.training import session as session_module
from kutta.training.report import Reporter
from kutta.training.run import Outcome, dry_run_summary, train
from kutta.training.stopping import asked_to_stop
from kutta.training.validate import Validation
from kutta.training.window import Window
from kutta.translate import Translator

Configure = Callable[..., Config]
Train = Callable[..., Outcome]


@pytest.fixture
def silently(silent: Console) -> Train:
    """`train` without a word."""

    def go(config: Config, overwrite: bool = False) -> Outcome:
        return train(config, overwrite, silent)

    return go


def at_step(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], Any]) -> None:
    """Do something in the middle of training, right after update `number`."""
    real = Reporter.step

    def step(self: Reporter, record: Any) -> None:
        real(self, record)
        if record.number == number:
            act()

    monkeypatch.setattr(Reporter, "step", step)


def ask_to_stop(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


def saved(config: Config) -> list[int]:
    return [one.step for one in list_checkpoints(Path(config.run))]


def model_of(config: Config) -> bytes:
    return (Path(config.run) / "model.safetensors").read_bytes()


def recorded(config: Config, kind: str) -> list[int]:
    return [r["step"] for r in Run.load(config.run).records() if r["kind"] == kind]


def state_of(config: Config) -> dict[str, Any]:
    return json.loads(list_checkpoints(Path(config.run))[-1].state.read_text())


def validations(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    """Let the validations find these losses, one after another."""
    left = iter(losses)
    monkeypatch.setattr(
        session_module, "held_out_loss", lambda *_: Validation(next(left), 1.0, tokens=5)
    )


# ---- a whole run ----------------------------------------------------------------------------


def test_a_run_from_text_to_translation(configure: Configure, silently: Train) -> None:
    config = configure("train.valid_bleu=true", "train.tensorboard=true")
    outcome = silently(config)
    run = Path(config.run)
    assert (outcome.run, outcome.step, outcome.ended) == (run, 8, "finished")
    there = {path.name for path in run.iterdir()}
    assert there == {
        *("config.json", "vocab.txt", "store", "checkpoints", "metrics.jsonl", "train.log"),
        *("model.safetensors", "README.md", "tensorboard", "text", "checksums.json"),
    }
    assert saved(config) == [4, 8]
    assert recorded(config, "train") == list(range(1, 9))
    assert recorded(config, "valid") == [4, 8]
    assert Config.load(run / "config.json") == configure(
        "train.valid_bleu=true", "train.tensorboard=true", "train.pieces=1"
    )
    for file in run.rglob("*"):
        if file.is_file() and file.name not in ("config.json", "train.log"):
            assert str(run.parent).encode() not in file.read_bytes(), f"{file} holds a path"


def test_a_validation_has_loss_perplexity_and_bleu_with_its_signature(
    configure: Configure, silently: Train
) -> None:
    config = configure("train.valid_bleu=true", "train.max_steps=4")
    outcome = silently(config)
    (record,) = [r for r in Run.load(config.run).records() if r["kind"] == "valid"]
    assert outcome.validation is not None
    assert isinstance(outcome.validation.bleu, Score)
    assert record["bleu"] == outcome.validation.bleu.value
    assert record["signature"] == outcome.validation.bleu.signature
    assert "|" in record["signature"]
    assert record["loss"] > record["nll"] > 0
    target = Path(config.data.dir) / "valid.bb"
    tokens = sum(len(line.split()) + 1 for line in target.read_text().splitlines())
    assert record["tokens"] == tokens
    card = (Path(config.run) / "README.md").read_text()
    assert record["signature"].replace("|", "\\|") in card, "one cell of the table"
    assert "kutta translate ." in card


def test_the_final_model_is_the_average_of_the_last(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the best from long ago is kept beside them: it is not among the last."""
    config = configure("train.save_every=2", "train.keep_last=2", "decode.average=5")
    validations(monkeypatch, [1.0, 2.0, 2.0, 2.0])
    silently(config)
    assert saved(config) == [2, 6, 8]
    parts = [load_file(one.weights) for one in list_checkpoints(Path(config.run))[-2:]]
    for name, tensor in load_file(Path(config.run) / "model.safetensors").items():
        mean = (parts[0][name].astype("f8") + parts[1][name]) / 2
        assert (tensor == mean.astype("f4")).all()


def final_model(
    config: Config, silently: Train, monkeypatch: pytest.MonkeyPatch, losses: list[float]
) -> tuple[bool, int]:
    """Train with these validations: whether the end was early, and of which step the model is."""
    with monkeypatch.context() as patch:
        validations(patch, losses)
        outcome = silently(config)
    run, made = Path(config.run), load_file(Path(config.run) / "model.safetensors")
    same = [
        checkpoint
        for checkpoint in list_checkpoints(run)
        if all((t == made[n]).all() for n, t in load_file(checkpoint.weights).items())
    ]
    assert len(same) == 1
    step = same[0].step
    assert read_origin(run / "model.safetensors") == f"step:{step}"
    assert f"checkpoint, step {step}" in (run / "train.log").read_text().splitlines()[-1]
    return outcome.ended == "early stop", step


@pytest.mark.parametrize(
    ("kind", "losses", "steps", "early"),
    [
        ("best", [5.0, 3.0, 4.0, 4.0], 4, False),  # not the last
        ("last", [5.0, 3.0, 4.0, 4.0], 8, False),
        ("best", [5.0, 4.0, 3.0, 2.0], 8, False),  # the last is the best
        ("best", [1.0, 2.0, 2.0, 2.0], 2, False),  # older than the keep_last = 2 newest
        ("last", [1.0, 2.0, 2.0, 2.0], 8, False),
        ("best", [5.0, 3.0, 4.0, 4.0, 4.0], 4, True),  # patience = 3 ends it at step 10
        ("last", [5.0, 3.0, 4.0, 4.0, 4.0], 10, True),
        ("best", [1.0, 3.0, 4.0, 4.0], 2, True),
        ("best", [math.nan, math.nan, math.nan, math.nan], 8, False),  # none was any good: the last
    ],
)
def test_the_final_model_is_the_best_or_the_last_checkpoint(
    configure: Configure,
    silently: Train,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    losses: list[float],
    steps: int,
    early: bool,
) -> None:
    most = 50 if early else 8
    config = configure(
        *(f"train.final_model={kind}", "train.save_every=2", "train.keep_last=2"),
        *(f"train.max_steps={most}", f"train.patience={3 if early else 0}", "decode.average=5"),
    )
    assert final_model(config, silently, monkeypatch, losses) == (early, steps)
    before = model_of(config)
    silently(config)  # a run that has ended stays as it is
    assert model_of(config) == before


def test_the_average_is_that_of_the_last_whatever_was_best(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure("train.save_every=2", "train.patience=3", "train.max_steps=50")
    validations(monkeypatch, [1.0, 2.0, 2.0, 2.0])
    assert silently(config).ended == "early stop"
    parts = [
        load_file(Path(config.run) / "checkpoints" / f"step-0000000{n}" / "model.safetensors")
        for n in (6, 8)
    ]
    for name, tensor in load_file(Path(config.run) / "model.safetensors").items():
        assert (tensor == ((parts[0][name].astype("f8") + parts[1][name]) / 2).astype("f4")).all()
    assert read_origin(Path(config.run) / "model.safetensors") == "average:2"


def test_the_best_may_lie_between_two_checkpoints_of_the_schedule(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("train.save_every=4", "train.valid_every=1", "train.keep_last=1")
    config = configure(*settings, "train.max_steps=8", "train.final_model=best")
    losses = [9.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert final_model(config, silently, monkeypatch, losses) == (False, 3)


def test_another_final_model_is_chosen_of_a_finished_run_without_training(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("train.save_every=2", "train.keep_last=2")
    losses = [5.0, 1.0, 2.0, 3.0]
    for kind, step in (("best", 4), ("last", 8), ("best", 4)):
        config = configure(*settings, f"train.final_model={kind}")
        assert final_model(config, silently, monkeypatch, losses) == (False, step)
        losses = []  # nothing is validated again
    assert recorded(config, "train") == list(range(1, 9))


def test_the_card_tells_the_validation_of_the_model_that_was_kept(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([3.0, 1.0, 2.0, 2.5])
    monkeypatch.setattr(
        session_module, "held_out_loss", lambda *_: Validation(loss := next(left), loss, tokens=5)
    )
    settings = ("train.save_every=2", "train.keep_last=2")
    config = configure(*settings, "train.final_model=best")
    silently(config)
    card = (Path(config.run) / "README.md").read_text()
    assert "| weights | the best checkpoint, step 4 |" in card
    assert "perplexity 2.72 |" in card  # e, not exp(2.5) of the end
    silently(configure(*settings, "train.final_model=last"))
    card = (Path(config.run) / "README.md").read_text()
    assert "| weights | the last checkpoint, step 8 |" in card
    assert "perplexity 12.18 |" in card


@pytest.mark.parametrize("shared", ["true", "false"])
def test_an_untied_translation_model_is_trained_saved_and_loaded(
    configure: Configure, silently: Train, tmp_path: Path, shared: str
) -> None:
    settings = ("model.tie_embeddings=false", f"data.shared_vocab={shared}", "decode.average=1")
    config = configure(*settings, "train.max_steps=1", f"run={tmp_path / 'one'}")
    silently(config)
    kept = load_file(Path(config.run) / "model.safetensors")
    tokenizers = Tokenizers.load(Path(config.run))
    assert kept["output.weight"].shape == (len(tokenizers.target), 8)
    torch.manual_seed(config.train.seed)
    sizes = len(tokenizers.source), len(tokenizers.target)
    fresh = build_model(config.model, *sizes, tokenizers.shared)
    moved = kept["output.weight"] - fresh.output_weight.detach().numpy()
    assert (abs(moved) > 0).any(axis=1).all(), "label smoothing gives every token a gradient"
    (loaded,) = Translator.load(config.run, "cpu").models
    assert (loaded.output_weight.detach().numpy() == kept["output.weight"]).all()
    assert Translator.load(config.run, "cpu").translate(["dog sees cat"])
    parts = [configure(*settings, f"train.max_steps={n}", f"run={tmp_path / 'p'}") for n in (4, 8)]
    for part in parts:
        silently(part)
    whole = configure(*settings, f"run={tmp_path / 'whole'}")
    silently(whole)
    assert model_of(parts[1]) == model_of(whole), "its moments are saved too"


def test_bpe_dropout_is_at_work(configure: Configure, silently: Train) -> None:
    bpe = ("data.tokenizer=bpe", "data.vocab_size=300", "train.batch_tokens=500")
    models: list[bytes] = []
    for rate in (0.0, 0.3):
        config = configure(*bpe, "train.max_steps=1", f"data.bpe_dropout={rate}")
        silently(config, overwrite=True)
        models.append(model_of(config))
    assert models[0] != models[1]


def test_a_moved_run_still_translates(
    configure: Configure, silently: Train, tmp_path: Path
) -> None:
    config = configure("train.max_steps=4")
    silently(config)
    before = Translator.load(config.run, "cpu").translate(["dog sees cat"])
    shutil.copytree(config.run, tmp_path / "elsewhere" / "copy")
    shutil.rmtree(config.run)
    moved = tmp_path / "elsewhere" / "copy"
    assert Translator.load(moved, "cpu").translate(["dog sees cat"]) == before
    checkpoint = moved / "checkpoints" / "step-00000004"
    assert len(Translator.load(checkpoint, "cpu").translate(["dog sees cat"])) == 1


def test_a_moved_run_resumes(configure: Configure, silently: Train, tmp_path: Path) -> None:
    straight = configure("train.max_steps=8")
    silently(straight)
    config = configure("train.max_steps=4", f"run={tmp_path / 'first'}")
    silently(config)
    (tmp_path / "first").rename(tmp_path / "second")
    moved = configure("train.max_steps=8", f"run={tmp_path / 'second'}")
    assert silently(moved).step == 8
    assert model_of(moved) == model_of(straight)


def test_running_a_finished_run_again_changes_nothing(
    configure: Configure, silently: Train
) -> None:
    config = configure("train.valid_bleu=true", "train.max_steps=4")
    first = silently(config)
    names = ("model.safetensors", "README.md", "metrics.jsonl", "config.json")
    before = {name: (Path(config.run) / name).read_bytes() for name in names}
    again = silently(config)
    assert again.ended == "finished"
    assert first.validation is not None
    assert again.validation is not None
    assert again.validation.loss == first.validation.loss
    assert {name: (Path(config.run) / name).read_bytes() for name in names} == before


# ---- interruptions --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_same_command_resumes_exactly(
    configure: Configure,
    silently: Train,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    number: int,
) -> None:
    """Twice interrupted off the schedule, the final model is that of an uninterrupted run.

    It averages five checkpoints, so one that only an interruption made would show.
    """
    settings = (
        "train.save_every=3",
        "train.max_steps=11",
        "decode.average=5",
        "train.accumulate=2",
    )
    straight = configure(*settings, f"run={tmp_path / 'straight'}")
    silently(straight)
    config = configure(*settings)
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    for stop, checkpoints in ((4, [3, 4]), (8, [3, 6, 8])):
        with monkeypatch.context() as patch:
            at_step(patch, stop, lambda: ask_to_stop(number))
            outcome = silently(config)
        assert (outcome.ended, outcome.step) == ("interrupted", stop)
        assert saved(config) == checkpoints
        assert not (Path(config.run) / "model.safetensors").exists()
        log = (Path(config.run) / "train.log").read_text()
        assert f"saved at step {stop}; run the same command to resume" in log
    assert handlers == [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    assert silently(config).ended == "finished"
    assert saved(config) == saved(straight) == [3, 6, 9, 11]
    assert model_of(config) == model_of(straight)
    last = "checkpoints/step-00000011"
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        found, wanted = (Path(c.run) / last / name for c in (config, straight))
        assert found.read_bytes() == wanted.read_bytes(), name
    assert recorded(config, "train") == list(range(1, 12))
    assert recorded(config, "valid") == recorded(straight, "valid") == [3, 6, 9, 11]


def test_a_second_ctrl_c_ends_at_once(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure()
    with monkeypatch.context() as patch:
        at_step(patch, 6, lambda: (ask_to_stop(), ask_to_stop(signal.SIGINT)))
        with pytest.raises(KeyboardInterrupt):
            silently(config)
    assert saved(config) == [4]
    assert silently(config).ended == "finished"


def test_a_second_sigterm_waits_for_the_checkpoint(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster sends it to all processes, and torchrun to its own."""
    config = configure()
    with monkeypatch.context() as patch:
        at_step(patch, 6, lambda: (ask_to_stop(), ask_to_stop()))
        assert silently(config).ended == "interrupted"
    assert saved(config) == [4, 6]


def test_the_caller_keeps_its_threads(configure: Configure, silently: Train) -> None:
    before = torch.get_num_threads()
    silently(configure("train.max_steps=1", f"train.threads={before + 1}"))
    assert torch.get_num_threads() == before


def test_training_in_a_thread_works_without_signals(configure: Configure, silently: Train) -> None:
    """As from a notebook's worker, where signals cannot be caught."""
    outcomes: list[Outcome] = []
    config = configure("train.max_steps=2")
    thread = threading.Thread(target=lambda: outcomes.append(silently(config)))
    thread.start()
    thread.join()
    assert [outcome.ended for outcome in outcomes] == ["finished"]


def test_the_signal_is_named_and_nothing_is_asked_before_it_comes() -> None:
    with asked_to_stop() as asked:
        assert asked == []
        ask_to_stop()
        time.sleep(0)
        assert asked == ["SIGTERM"]


class Killed(BaseException):
    """The process ends here: no handler runs, nothing is cleaned up."""


@pytest.mark.parametrize(
    "moment",
    [
        "config.json",
        "vocab.txt",
        r"\.kutta-.*/store/valid.arrow",
        r"\.kutta-.*/store/report.json",
        ".prepared",
        "store/train.arrow",
        "checkpoints/step-00000002",
        r"checkpoints/\.kutta-.*step-00000004.*/optimizer.safetensors",
        r"checkpoints/\.kutta-.*step-00000005.*/state.json",
        "checksums.json",
        "model.safetensors",
        "README.md",
    ],
)
def test_a_run_killed_at_any_write_resumes_exactly(
    configure: Configure,
    silently: Train,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Right before this file or folder gets its name, with all temporaries left lying about."""
    settings = ("train.save_every=2", "train.max_steps=5", "train.keep_last=1", "train.log_every=2")
    config = configure(*settings)
    replace, dead = os.replace, list[bool]()

    def kill(source: Any, target: Any) -> None:
        if re.fullmatch(moment, str(Path(target).relative_to(config.run))):
            dead.append(True)
            raise Killed
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", kill)
        patch.setattr(files, "remove", lambda path: dead or files_remove(path))
        with pytest.raises(Killed):
            silently(config)
    assert list(Path(config.run).rglob(".*.tmp")) or moment == "store/train.arrow"
    assert silently(config).ended == "finished"
    assert model_of(config) == reference_model(settings, configure, silently, tmp_path_factory)
    assert recorded(config, "train") == [2, 4]
    assert not list(Path(config.run).rglob(".*.tmp")), "what the killed process left is swept up"


files_remove = files.remove
_models: dict[tuple[str, ...], bytes] = {}


def reference_model(
    settings: tuple[str, ...],
    configure: Configure,
    silently: Train,
    tmp_path_factory: pytest.TempPathFactory,
) -> bytes:
    """The final model of these settings without an interruption, trained once."""
    if settings not in _models:
        config = configure(*settings, f"run={tmp_path_factory.mktemp('straight') / 'run'}")
        silently(config)
        _models[settings] = model_of(config)
    return _models[settings]


def test_a_killed_process_resumes_exactly(
    configure: Configure, silently: Train, tmp_path: Path
) -> None:
    """SIGKILL at a moment of chance; then the same command."""
    settings = (
        *("train.max_steps=60", "train.save_every=3", "train.keep_last=2", "train.threads=1"),
        *("data.tokenizer=bpe", "data.vocab_size=300", "data.bpe_dropout=0.2"),
        *("train.batch_tokens=300", "train.valid_every=60"),
    )
    config = configure(*settings)
    path = tmp_path / "config.json"
    path.write_text(config.to_json())
    command = [sys.executable, "-m", "kutta", "train", str(path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 300
        while not saved(config) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.5))
        process.kill()
    stopped = saved(config)
    assert stopped, "the process did not come to its first checkpoint"
    assert silently(config).ended == "finished"
    straight = configure(*settings, f"run={tmp_path / 'straight'}")
    silently(straight)
    assert model_of(config) == model_of(straight), f"killed at about step {stopped[-1]}"
    assert recorded(config, "train") == list(range(1, 61))


# ---- whose folder it is ---------------------------------------------------------------------


def test_a_run_of_another_config_is_refused_with_key_and_values(
    configure: Configure, silently: Train
) -> None:
    silently(configure("train.max_steps=4"))
    before = saved(configure())
    for override, phrase in (
        ("model.d_model=16", "model.d_model = 8 there, 16 here"),
        ("train.lr=0.5", "train.lr = 0.01 there, 0.5 here"),
        ("train.seed=9", "train.seed = 1 there, 9 here"),
        ("data.max_ratio=3.0", "data.max_ratio = 9.0 there, 3.0 here"),
        ("train.batch_tokens=99", "train.batch_tokens = 160 there, 99 here"),
    ):
        with pytest.raises(InputError) as caught:
            silently(configure(override))
        assert phrase in str(caught.value)
        assert "--overwrite" in str(caught.value)
    assert saved(configure()) == before
    kept = Config.load(Path(configure().run) / "config.json")
    assert kept == configure("train.max_steps=4", "train.pieces=1")


def test_free_settings_and_more_steps_are_accepted_on_resume(
    configure: Configure, silently: Train, tmp_path: Path
) -> None:
    config = configure("train.max_steps=4")
    assert silently(config).step == 4
    settings = ("train.max_steps=8", "train.log_every=2", "decode.beam=1")
    longer = configure(*settings)
    assert silently(longer).step == 8
    assert Config.load(Path(config.run) / "config.json") == configure(*settings, "train.pieces=1")
    straight = configure("train.max_steps=8", f"run={tmp_path / 'straight'}")
    silently(straight)
    assert model_of(longer) == model_of(straight)


def test_raising_an_end_that_was_off_the_schedule_is_exact_too(
    configure: Configure, silently: Train, tmp_path: Path
) -> None:
    """The old last checkpoint, which the longer run would not have made, is not averaged."""
    keep = "decode.average=5"
    silently(configure("train.max_steps=5", keep))
    longer = configure("train.max_steps=9", keep)
    silently(longer)
    straight = configure("train.max_steps=9", keep, f"run={tmp_path / 'straight'}")
    silently(straight)
    assert saved(longer) == saved(straight) == [4, 8, 9]
    assert model_of(longer) == model_of(straight)


def test_until_text_is_prepared_every_setting_may_change(configure: Configure) -> None:
    """A run that failed on a wrong setting resumes once it is corrected."""
    with pytest.raises(InputError, match="nothing"):
        train(configure("data.train=nothing"))
    open_run(configure("data.max_ratio=4.0", "model.d_model=16"))
    assert Config.load(Path(configure().run) / "config.json").model.d_model == 16


def test_overwrite_starts_over(configure: Configure, silently: Train) -> None:
    silently(configure("train.max_steps=8"))
    other = configure("train.max_steps=4", "model.d_model=16")
    (Path(other.run) / "hypotheses").mkdir()
    assert silently(other, overwrite=True).step == 4
    assert saved(other) == [4]
    assert recorded(other, "train") == [1, 2, 3, 4]
    assert not (Path(other.run) / "hypotheses").exists()


def test_overwrite_with_missing_text_keeps_the_old_run(
    configure: Configure, silently: Train
) -> None:
    config = configure("train.max_steps=4")
    silently(config)
    before = model_of(config)
    with pytest.raises(InputError, match="nothing"):
        silently(configure("data.valid=nothing"), overwrite=True)
    assert model_of(config) == before
    assert saved(config) == [4]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("thesis.txt", "ten years of work"),
        ("config.json", '{"architectures": ["SomeoneElse"], "model": "x"}'),
        ("config.json", "not JSON"),
        ("config.json", "[]"),
    ],
)
def test_a_folder_of_someone_else_is_neither_used_nor_removed(
    configure: Configure, silently: Train, overwrite: bool, file: str, text: str
) -> None:
    config = configure()
    run = Path(config.run)
    run.mkdir()
    (run / file).write_text(text)
    (run / "precious").write_text("x")
    with pytest.raises(InputError, match="is not a Kutta run; choose another folder"):
        silently(config, overwrite)
    assert {path.name for path in run.iterdir()} == {file, "precious"}
    assert (run / file).read_text() == text


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_in_the_place_of_the_run_is_neither_used_nor_removed(
    configure: Configure, silently: Train, overwrite: bool
) -> None:
    config = configure()
    Path(config.run).write_text("precious")
    with pytest.raises(InputError, match="choose another folder"):
        silently(config, overwrite)
    assert Path(config.run).read_text() == "precious"


def test_an_empty_folder_is_taken(configure: Configure, silently: Train) -> None:
    config = configure("train.max_steps=1")
    Path(config.run).mkdir()
    assert silently(config).ended == "finished"


def test_text_that_is_missing_is_told_before_training(
    configure: Configure, silently: Train, tmp_path: Path
) -> None:
    """A run without its own text needs it for BLEU; it says so at once, not at the first BLEU."""
    silently(configure("train.max_steps=1"))
    remove(Path(configure().run) / "text")  # as in a run of an earlier version
    moved = configure("train.max_steps=9", "train.valid_bleu=true", f"data.dir={tmp_path / 'no'}")
    with pytest.raises(InputError, match=r"There is no folder .*no; set data\.dir"):
        silently(moved)
    assert recorded(moved, "train") == [1]
    assert silently(configure("train.max_steps=2", f"data.dir={tmp_path / 'no'}")).step == 2


def test_an_unknown_device_is_told_before_anything_is_thrown_away(
    configure: Configure, silently: Train
) -> None:
    config = configure("train.max_steps=1")
    silently(config)
    with pytest.raises(InputError, match="device"):
        silently(configure("train.device=abacus"), overwrite=True)
    assert model_of(config)


def test_the_plan_says_what_would_be_done(configure: Configure, silently: Train) -> None:
    config = configure("train.max_steps=4")
    plan = dry_run_summary(config)
    assert "start" in plan
    assert "to be prepared" in plan
    assert not Path(config.run).exists(), "nothing is done"
    silently(config)
    for steps in (4, 2):  # it cannot end before the step that it has reached
        assert "already finished at step 4" in dry_run_summary(
            configure(f"train.max_steps={steps}")
        )
    assert "resume from step 4" in dry_run_summary(configure("train.max_steps=5"))
    assert "; prepared" in dry_run_summary(config)
    with pytest.raises(InputError, match="nothing"):
        dry_run_summary(configure("data.test=['nothing']"))


# ---- best, patience, and losses that are not finite -----------------------------------------


def test_patience_ends_a_run_and_it_stays_ended(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure("train.max_steps=50", "train.save_every=2", "train.patience=2")
    validations(monkeypatch, [5.0, 4.0, 4.0, 4.5, 1.0])
    outcome = silently(config)
    assert (outcome.ended, outcome.step) == ("early stop", 8)
    assert state_of(config)["progress"] == {
        "best": 4.0,
        "best_step": 4,
        "since_best": 2,
        "by": "loss",
        "window": Window().to_dict(),
    }
    assert (Path(config.run) / "model.safetensors").is_file()
    again = silently(config)
    assert (again.ended, again.step) == ("early stop", 8)
    more = configure("train.max_steps=10", "train.save_every=2", "train.patience=5")
    outcome = silently(more)
    assert (outcome.ended, outcome.step) == ("finished", 10)
    assert state_of(more)["progress"]["best"] == 1.0


def test_the_records_of_a_resumed_run_are_those_of_an_uninterrupted_one(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Interrupted in the middle of the window that a record summarises."""
    settings = ("train.max_steps=12", "train.log_every=5", "train.save_every=4")
    straight, config = configure(*settings, f"run={tmp_path / 'straight'}"), configure(*settings)
    silently(straight)
    for step in (3, 6, 9):
        with monkeypatch.context() as patch:
            at_step(patch, step, ask_to_stop)
            assert silently(config).ended == "interrupted"
    silently(config)

    def records(of: Config) -> list[dict[str, Any]]:
        kept = Run.load(of.run).records()
        return [{k: v for k, v in one.items() if k != "tokens_per_second"} for one in kept]

    assert records(config) == records(straight)
    assert state_of(config) == state_of(straight)


def test_patience_counts_across_interruptions(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure("train.max_steps=50", "train.save_every=2", "train.patience=3")
    validations(monkeypatch, [1.0, 2.0, 2.0, 2.0, 2.0])
    with monkeypatch.context() as patch:
        at_step(patch, 5, ask_to_stop)
        assert silently(config).ended == "interrupted"
    assert (silently(config).step, state_of(config)["progress"]["since_best"]) == (8, 3)


def test_the_best_is_kept_beside_the_last(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure("train.max_steps=12", "train.save_every=2", "train.keep_last=2")
    validations(monkeypatch, [5.0, 1.0, 2.0, 3.0, 2.0, 4.0])
    silently(config)
    assert saved(config) == [4, 10, 12]


def test_the_best_is_kept_where_validations_are_more_often_than_checkpoints(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("train.save_every=4", "train.valid_every=1", "train.keep_last=2")
    config = configure(*settings, "train.max_steps=8")
    validations(monkeypatch, [9.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    silently(config)
    assert saved(config) == [3, 4, 8]
    assert state_of(config)["progress"]["best_step"] == 3


def test_the_best_by_bleu(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("train.best=bleu", "train.valid_bleu=true", "train.keep_last=1")
    config = configure(*settings, "train.save_every=2", "train.max_steps=6")
    scores = iter([10.0, 30.0, 20.0])
    monkeypatch.setattr(
        session_module, "valid_score", lambda *_: Score("BLEU", next(scores), "", "signed")
    )
    silently(config)
    assert saved(config) == [4, 6]
    assert [r["bleu"] for r in Run.load(config.run).records() if r["kind"] == "valid"] == [
        10,
        30,
        20,
    ]


def test_another_measure_of_the_best_starts_its_own_count(
    configure: Configure, silently: Train
) -> None:
    """A loss of 3 is no BLEU to beat."""
    silently(configure("train.max_steps=4", "train.valid_bleu=true"))
    by_bleu = configure("train.max_steps=8", "train.valid_bleu=true", "train.best=bleu")
    silently(by_bleu)
    progress = state_of(by_bleu)["progress"]
    assert (progress["by"], progress["best_step"]) == ("bleu", 8)


def test_a_validation_that_is_not_finite_is_no_best(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure("train.max_steps=6", "train.save_every=2")
    validations(monkeypatch, [float("nan"), 5.0, float("inf")])
    silently(config)
    assert state_of(config)["progress"]["best_step"] == 4


def test_a_training_that_breaks_keeps_its_last_checkpoint(
    configure: Configure, silently: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure("train.max_steps=50", "train.max_bad_steps=3")
    sessions: list[Any] = []
    real = run_module.make_trainer

    def caught_trainer(*inputs: Any) -> Any:
        sessions.append(real(*inputs))
        return sessions[-1]

    def ruin() -> None:
        with torch.no_grad():
            next(sessions[-1].model.parameters()).fill_(torch.nan)

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "make_trainer", caught_trainer)
        at_step(patch, 5, ruin)
        with pytest.raises(InputError, match="not finite for 3 consecutive steps"):
            silently(config)
    assert saved(config) == [4]
    log = (Path(config.run) / "train.log").read_text()
    assert log.count("update skipped") == 2
    records = [r for r in Run.load(config.run).records() if r["step"] > 5]
    assert [(r["loss"], r["skipped"]) for r in records] == [(None, 1), (None, 1)]
    assert silently(configure("train.max_steps=8", "train.max_bad_steps=3")).ended == "finished"


def test_a_truncated_checkpoint_is_reported_and_the_one_before_is_used(
    configure: Configure, silently: Train, tmp_path: Path
) -> None:
    straight = configure("train.max_steps=12", f"run={tmp_path / 'straight'}")
    silently(straight)
    silently(configure("train.max_steps=8"))
    config = configure("train.max_steps=12")
    newest = list_checkpoints(Path(config.run))[-1].path
    damaged = newest / "optimizer.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.warns(UserWarning, match=rf"{newest} is damaged .*resumes from step 4 "):
        assert silently(config).ended == "finished"
    assert model_of(config) == model_of(straight)
    assert recorded(config, "train") == list(range(1, 13))


def test_two_trainings_in_one_folder_are_refused(
    configure: Callable[..., Config], silent: Console
) -> None:
    config = configure()
    with locked(Path(config.run)), pytest.raises(InputError, match="Another process is training"):
        train(config, overwrite=True, console=silent)
    assert train(config, console=silent).ended == "finished"
