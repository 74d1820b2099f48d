"""Checkpoints: exact, in one piece, as few as requested, and a clear message for a damaged one."""

import copy
import errno
import json
import os
import subprocess
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.numpy import load_file, save_file

from kutta.config import Config
from kutta.errors import InputError
from kutta.model.weights import read_origin, read_tensors
from kutta.runs.checkpoints import (
    Checkpoint,
    average,
    list_checkpoints,
    prune,
    regular_checkpoints,
)
from kutta.training.checkpoint import Progress, resume, save_checkpoint
from kutta.training.loop import Step, fit
from kutta.training.run import train

Configure = Callable[..., Config]
Assemble = Callable[[Config], Any]

FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


def steps(bench: Any, count: int) -> list[Step]:
    return list(islice(fit(bench.trainer, bench.stream, bench.config.train), count))


def everything(bench: Any) -> dict[str, np.ndarray]:
    """All that training changes, by name."""
    found: dict[str, np.ndarray] = {}
    for name, parameter in bench.trainer.model.named_parameters():
        found[name] = parameter.detach().numpy().copy()
        for key, value in bench.trainer.optimizer.state[parameter].items():
            found[f"{name}.{key}"] = value.numpy().copy()
    return found


def assert_identical(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].tobytes() == other[name].tobytes(), name


def save(bench: Any, progress: Progress | None = None, scheduled: bool = True) -> Path:
    return save_checkpoint(bench.run, bench.trainer, progress or Progress(), scheduled).path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def names(checkpoints: list[Checkpoint]) -> list[int]:
    return [one.step for one in checkpoints]


# ---- exact resume ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("train.accumulate=3", "model.dropout=0.3", "model.solver=rk2", "model.gamma=learned"),
        (
            *("data.tokenizer=bpe", "data.vocab_size=300", "data.bpe_dropout=0.3"),
            "train.batch_tokens=500",
        ),
        ("data.shared_vocab=false", "model.solver=dlcl", "train.clip_norm=0.5"),
        ("train.precision=bf16",),
        ("train.precision=fp16",),
    ],
    ids=["plain", "accumulated", "bpe-dropout", "separate", "bf16", "fp16"],
)
def test_a_resumed_training_is_identical_to_an_uninterrupted_one(
    configure: Configure, assemble: Assemble, settings: tuple[str, ...]
) -> None:
    """Bit for bit: weights, moments, losses. New objects, other initial weights, mid-epoch."""
    config = configure(*settings, "train.max_steps=9")
    straight = assemble(config)
    before = steps(straight, 9)
    halted = assemble(config)
    first = steps(halted, 4)
    assert halted.trainer.position % halted.stream.batches_per_epoch, "not in mid-epoch"
    save(halted, Progress(1.5, 4, 2, "bleu"))
    resumed = assemble(config)
    with torch.no_grad():
        for parameter in resumed.trainer.model.parameters():
            parameter.fill_(7.0)
    torch.manual_seed(999)
    assert resume(resumed.run, resumed.trainer) == Progress(1.5, 4, 2, "bleu")
    assert (resumed.trainer.step, resumed.trainer.position) == (4, 4 * config.train.accumulate)
    rest = steps(resumed, 9)
    assert resumed.trainer.position > resumed.stream.batches_per_epoch, "no second epoch"
    assert [s.loss for s in first + rest] == [s.loss for s in before]
    assert [s.grad_norm for s in first + rest] == [s.grad_norm for s in before]
    assert_identical(everything(resumed), everything(straight))
    assert resumed.trainer.scale == straight.trainer.scale


def test_a_resumed_training_remembers_bad_steps(configure: Configure, assemble: Assemble) -> None:
    bench = assemble(configure())
    steps(bench, 3)
    bench.trainer.bad_steps = 3
    save(bench)
    fresh = assemble(configure())
    resume(fresh.run, fresh.trainer)
    assert fresh.trainer.bad_steps == 3


def test_where_there_is_no_checkpoint_training_starts(
    configure: Configure, assemble: Assemble
) -> None:
    bench = assemble(configure())
    assert resume(bench.run, bench.trainer) is None
    assert (bench.trainer.step, bench.trainer.position) == (0, 0)
    assert list_checkpoints(bench.run) == regular_checkpoints(bench.run) == []


def test_the_newest_checkpoint_is_taken_and_other_folders_are_not(
    configure: Configure, assemble: Assemble
) -> None:
    bench = assemble(configure())
    for _ in range(2):
        steps(bench, 1)
        save(bench)
    for name in ("step-9-copy", "step-final", ".step-00000009.123.tmp", "best"):
        (bench.run / "checkpoints" / name).mkdir()
    assert names(list_checkpoints(bench.run)) == [1, 2]
    fresh = assemble(configure())
    resume(fresh.run, fresh.trainer)
    assert fresh.trainer.step == 2


def test_a_checkpoint_holds_no_code_and_no_path(configure: Configure, assemble: Assemble) -> None:
    bench = assemble(configure())
    steps(bench, 1)
    path = save(bench)
    assert {file.name for file in path.iterdir()} == {*FILES, "checksums.json"}
    for data in contents(path).values():
        assert str(bench.run.parent).encode() not in data
        assert not data.startswith((b"\x80", b"PK")), "a pickle"
    state = json.loads((path / "state.json").read_text())
    assert (state["step"], state["position"], state["scheduled"]) == (1, 1, True)
    assert state["versions"].keys() == {"kutta", "torch"}


# ---- in one piece ---------------------------------------------------------------------------


class Killed(BaseException):
    """As if the process ended here."""


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("error", [Killed(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_crash_while_saving_leaves_the_previous_checkpoint_and_no_half_one(
    configure: Configure,
    assemble: Assemble,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
    error: BaseException,
) -> None:
    """The write of each of the three files fails in turn, then the last renaming."""
    bench = assemble(configure())
    steps(bench, 1)
    good = save(bench)
    before = contents(good)
    steps(bench, 1)
    replace, calls = os.replace, [0]

    def fail(source: Any, target: Any) -> None:
        calls[0] += 1
        if calls[0] == at + 1:
            raise error
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    wanted = Killed if isinstance(error, Killed) else InputError
    with pytest.raises(wanted) as caught:
        save(bench)
    monkeypatch.undo()
    if wanted is InputError:
        assert "No space left on device" in str(caught.value)
        assert "run the same command again" in str(caught.value)
    assert [path.name for path in good.parent.iterdir()] == [good.name]
    assert contents(good) == before
    save(bench)
    assert names(list_checkpoints(bench.run)) == [1, 2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 512 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        done = False
    if not done:
        pytest.skip("no right to mount a small disk here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_really_is_full_loses_nothing(
    configure: Configure, small_disk: Path, silent: Console
) -> None:
    """Train until the disk is full, free some space, and resume: as if nothing had happened."""
    keep = "train.keep_last=50"
    straight = configure(keep, "train.max_steps=24", "train.save_every=2")
    assert train(straight, console=silent).ended == "finished"
    config = configure(
        keep, "train.max_steps=24", "train.save_every=2", f"run={small_disk / 'run'}"
    )
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(260_000))
    with pytest.raises(InputError, match="No space left on device"):
        train(config, console=silent)
    saved = list_checkpoints(Path(config.run))
    assert len(saved) >= 1
    for one in saved:
        assert set(FILES[::2]) <= {file.name for file in one.path.iterdir()}
    assert not list((Path(config.run) / "checkpoints").glob(".*"))
    ballast.unlink()
    assert train(config, console=silent).ended == "finished"
    found, wanted = (Path(c.run) / "model.safetensors" for c in (config, straight))
    assert found.read_bytes() == wanted.read_bytes()


# ---- damaged ones ---------------------------------------------------------------------------


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def nonsense(path: Path) -> None:
    path.write_bytes(b"[1, 2]")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, empty, nonsense, flip, Path.unlink])
@pytest.mark.parametrize("file", [*FILES, "checksums.json"])
def test_training_falls_back_from_a_damaged_checkpoint(
    configure: Configure, assemble: Assemble, file: str, damage: Callable[[Path], None]
) -> None:
    if file == "checksums.json" and damage is Path.unlink:
        pytest.skip("a checkpoint without checksums is one of an earlier version")
    bench = assemble(configure())
    for _ in range(2):
        steps(bench, 2)
        save(bench)
    newest = list_checkpoints(bench.run)[-1].path
    damage(newest / file)
    fresh = assemble(configure())
    with pytest.warns(UserWarning, match=r"is damaged") as caught:
        resume(fresh.run, fresh.trainer)
    (told,) = [str(one.message) for one in caught]
    assert told.startswith(f"The checkpoint {newest} is damaged (")
    assert "so training resumes from step 2 and computes 2 steps again" in told
    assert "step-00000004.damaged" in told
    assert "\n" not in told
    assert fresh.trainer.step == 2
    assert not newest.exists()
    assert newest.with_name("step-00000004.damaged").is_dir(), "it is not deleted"
    steps(fresh, 2)
    assert_identical(everything(fresh), everything(bench))
    save(fresh)
    assert names(list_checkpoints(bench.run)) == [2, 4]


def without_checksums(checkpoint: Path) -> Path:
    """As an earlier version has saved it, or edited by hand."""
    (checkpoint / "checksums.json").unlink()
    return checkpoint


@pytest.mark.filterwarnings("ignore:.*without checksums")
def test_a_state_that_contradicts_itself_is_damage(
    configure: Configure, assemble: Assemble
) -> None:
    """Without checksums too: nothing but the state itself shows it."""
    bench = assemble(configure())
    for _ in range(2):
        steps(bench, 2)
        path = without_checksums(save(bench, Progress(1.5, 2, 1)))
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | {"position": 5}))
    fresh = assemble(configure())
    with pytest.warns(UserWarning, match=r"its position is 5, not 4 x 1 micro-batches"):
        assert resume(fresh.run, fresh.trainer) == Progress(1.5, 2, 1)
    assert fresh.trainer.step == 2


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:.*without")
def test_impossible_numbers_are_damage(configure: Configure, assemble: Assemble) -> None:
    bench = assemble(configure())
    for _ in range(2):
        steps(bench, 2)
        path = without_checksums(save(bench))
    one = np.float32(1)
    for file, change, why in (
        ("model.safetensors", lambda t: t * np.float32(np.nan), "infinite or not a number"),
        ("model.safetensors", lambda t: t / np.float32(0), "infinite or not a number"),
        ("model.safetensors", lambda t: t.astype(np.float16), "does not fit the model"),
        ("model.safetensors", lambda t: t.astype(np.int64), "does not fit the model"),
        ("optimizer.safetensors", lambda t: t - one, "negative values"),
        ("optimizer.safetensors", lambda t: t + 99 * one, "more steps"),
    ):
        before = (path / file).read_bytes()
        tensors = load_file(path / file)
        save_file({name: np.asarray(change(t)) for name, t in tensors.items()}, path / file)
        fresh = assemble(configure())
        with pytest.warns(UserWarning, match=why):
            resume(fresh.run, fresh.trainer)
        assert fresh.trainer.step == 2
        path.with_name(f"{path.name}.damaged").rename(path)
        (path / file).write_bytes(before)


def test_a_checkpoint_of_an_earlier_version_is_resumed_from(
    configure: Configure, assemble: Assemble
) -> None:
    bench = assemble(configure())
    steps(bench, 2)
    path = without_checksums(save(bench))
    state = json.loads((path / "state.json").read_text())
    del state["pieces"], state["scale"], state["scheduled"], state["progress"]["window"]
    (path / "state.json").write_text(json.dumps(state))
    fresh = assemble(configure())
    with pytest.warns(UserWarning, match="saved by a version without checksums") as caught:
        assert resume(fresh.run, fresh.trainer) == Progress()
    assert len(caught) == 1
    steps(fresh, 1)
    save(fresh)
    with warnings.catch_warnings(action="error"):  # the next one has them
        assert resume(fresh.run, assemble(configure()).trainer) == Progress()


def test_if_no_checkpoint_is_intact_nothing_is_touched(
    configure: Configure, assemble: Assemble
) -> None:
    bench = assemble(configure())
    for _ in range(2):
        steps(bench, 1)
        empty(save(bench) / "state.json")
    with pytest.raises(InputError, match=r"step-00000002 is damaged .* no intact one to resume"):
        resume(bench.run, bench.trainer)
    assert names(list_checkpoints(bench.run)) == [1, 2]


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_checkpoint_that_cannot_be_read_is_not_damaged(
    configure: Configure, assemble: Assemble
) -> None:
    bench = assemble(configure())
    for _ in range(2):
        steps(bench, 1)
        path = save(bench)
    (path / "model.safetensors").chmod(0)
    with pytest.raises(InputError, match="check its permissions"):
        resume(bench.run, bench.trainer)
    assert names(list_checkpoints(bench.run)) == [1, 2]


def test_moments_of_another_model_are_refused(configure: Configure, assemble: Assemble) -> None:
    """Weights alone would load, and the training would silently be another one."""
    bench = assemble(configure())
    steps(bench, 1)
    path = without_checksums(save(bench)) / "optimizer.safetensors"
    tensors = load_file(path)
    for change in (
        {f"{name}.more": tensor for name, tensor in tensors.items()},
        {name: np.zeros((2, 2), np.float32) for name in tensors},
        {name: tensor for name, tensor in tensors.items() if "exp_avg_sq" not in name},
    ):
        save_file(change, path)
        with pytest.raises(InputError, match="is damaged"):
            resume(bench.run, assemble(configure()).trainer)


# ---- as few as asked for --------------------------------------------------------------------


def checkpoints_of(bench: Any, count: int, best: int = 0, keep_last: int = 2) -> list[int]:
    for _ in range(count):
        steps(bench, 1)
        save(bench)
        prune(bench.run, keep_last, best)
    return names(list_checkpoints(bench.run))


def test_the_last_are_kept(configure: Configure, assemble: Assemble) -> None:
    assert checkpoints_of(assemble(configure()), 5) == [4, 5]


def test_the_best_is_kept_too(configure: Configure, assemble: Assemble) -> None:
    assert checkpoints_of(assemble(configure()), 6, best=2) == [2, 5, 6]


def test_keeping_one_keeps_one(configure: Configure, assemble: Assemble) -> None:
    assert checkpoints_of(assemble(configure()), 3, keep_last=1) == [3]


def test_only_the_newest_two_keep_their_moments(configure: Configure, assemble: Assemble) -> None:
    bench = assemble(configure())
    assert checkpoints_of(bench, 5, best=1, keep_last=3) == [1, 3, 4, 5]
    found = {one.step: one.moments.is_file() for one in list_checkpoints(bench.run)}
    assert found == {1: False, 3: False, 4: True, 5: True}
    assert all(one.weights.is_file() for one in list_checkpoints(bench.run))


def test_what_an_interruption_saved_goes_with_the_next_scheduled_one(
    configure: Configure, assemble: Assemble
) -> None:
    bench = assemble(configure())
    seen: list[list[int]] = []
    for scheduled in (True, True, False, True, True):
        steps(bench, 1)
        save(bench, scheduled=scheduled)
        prune(bench.run, 3, 0)
        seen.append(names(list_checkpoints(bench.run)))
    assert seen == [[1], [1, 2], [1, 2, 3], [1, 2, 4], [2, 4, 5]]
    assert list_checkpoints(bench.run)[-2].moments.is_file()


def test_an_unscheduled_best_is_kept_but_does_not_count(
    configure: Configure, assemble: Assemble
) -> None:
    bench = assemble(configure())
    for scheduled in (True, False, True, True):
        steps(bench, 1)
        save(bench, scheduled=scheduled)
        prune(bench.run, 2, best_step=2)
    assert names(list_checkpoints(bench.run)) == [2, 3, 4]
    assert names(regular_checkpoints(bench.run)) == [3, 4]


def test_a_crash_while_removing_leaves_no_half_checkpoint(
    configure: Configure, assemble: Assemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = assemble(configure())
    for _ in range(3):
        steps(bench, 1)
        save(bench)

    def stop_half_way(path: Path) -> None:
        (path / "state.json").unlink()
        raise Killed

    monkeypatch.setattr("kutta.files.remove", stop_half_way)
    with pytest.raises(Killed):
        prune(bench.run, 2, 0)
    assert names(list_checkpoints(bench.run)) == [2, 3]


# ---- averaging ------------------------------------------------------------------------------


def test_the_average_is_the_arithmetic_mean(
    configure: Configure, assemble: Assemble, tmp_path: Path
) -> None:
    bench = assemble(configure("train.lr=0.3"))
    paths: list[Path] = []
    for _ in range(3):
        steps(bench, 1)
        paths.append(save(bench))
    average([*map(Checkpoint, paths)], tmp_path / "mean.safetensors")
    parts = [load_file(path / "model.safetensors") for path in paths]
    mean = load_file(tmp_path / "mean.safetensors")
    assert mean.keys() == parts[0].keys()
    for name, tensor in mean.items():
        exact = np.mean([part[name].astype(np.float64) for part in parts], axis=0)
        assert tensor.dtype == np.float32
        assert np.array_equal(tensor, exact.astype(np.float32))
    assert any((parts[0][name] != parts[2][name]).any() for name in mean)


def test_the_average_of_one_is_itself_and_says_its_step(
    configure: Configure, assemble: Assemble, tmp_path: Path
) -> None:
    bench = assemble(configure())
    steps(bench, 1)
    one = Checkpoint(save(bench))
    average([one], tmp_path / "one")
    average([one, one], tmp_path / "two")
    before = read_tensors(one.weights)
    for name, origin in (("one", "step:1"), ("two", "average:2")):
        after = read_tensors(tmp_path / name)
        assert before.keys() == after.keys()
        assert all(torch.equal(before[key], after[key]) for key in before)
        assert read_origin(tmp_path / name) == origin
    assert read_origin(one.weights) == ""


def test_the_average_of_nothing_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no checkpoint to average"):
        average([], tmp_path / "mean")


@pytest.mark.parametrize("other", ["model.ffn=24", "model.encoder_layers=2"])
def test_the_average_of_different_models_is_refused(
    configure: Configure, assemble: Assemble, tmp_path: Path, other: str
) -> None:
    paths: list[Path] = []
    for name, extra in (("a", ()), ("b", (other,))):
        bench = assemble(configure(*extra, f"run={tmp_path / name}"))
        paths.append(save(bench))
    with pytest.raises(InputError, match="weights of different models") as caught:
        average([*map(Checkpoint, paths)], tmp_path / "mean")
    assert str(paths[0]) in str(caught.value)
    assert str(paths[1]) in str(caught.value)
    assert not (tmp_path / "mean").exists()


def test_the_average_with_a_damaged_checkpoint_is_refused(
    configure: Configure, assemble: Assemble, tmp_path: Path
) -> None:
    bench = assemble(configure())
    path = save(bench)
    cut(path / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors is damaged"):
        average([Checkpoint(path)], tmp_path / "mean")


def test_saving_does_not_disturb_training(configure: Configure, assemble: Assemble) -> None:
    straight, saved = (assemble(configure(f"run={configure().run}-{n}")) for n in "ab")
    steps(straight, 6)
    for _ in range(6):
        steps(saved, 1)
        before = copy.deepcopy(everything(saved))
        save(saved)
        assert_identical(everything(saved), before)
    assert_identical(everything(saved), everything(straight))
