"""Processes that start, fail, are killed and restarted: nothing is lost, nobody is left behind."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.numpy import load_file

from kutta.config import Config
from kutta.errors import InputError
from kutta.runs.checkpoints import list_checkpoints
from kutta.runs.run import read_records
from kutta.training import opening
from kutta.training import run as run_module
from kutta.training.parallel.group import (
    SINGLE,
    ProcessGroup,
    is_launched,
    is_main_process,
    job,
    join,
)
from kutta.training.run import train

Configure = Callable[..., Config]
CPU = torch.device("cpu")


# ---- a group -----------------------------------------------------------------------------


def test_one_process_is_a_group_of_its_own() -> None:
    assert SINGLE.sum(1.5, 2.0) == [1.5, 2.0]
    assert [SINGLE.any(flag) for flag in (False, True)] == [False, True]
    assert SINGLE.broadcast(True, False) == [True, False]
    assert SINGLE.broadcast("text") == ["text"]
    assert SINGLE.is_main
    assert list(SINGLE.share(range(3, 6))) == [3, 4, 5]
    assert not ProcessGroup(1, 2).is_main


def test_what_torchrun_says_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert (is_launched(), is_main_process()) == (False, True)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert (is_launched(), is_main_process()) == (True, True)
    with join(CPU) as group:  # of one: there is nobody to wait for
        assert group is SINGLE
    monkeypatch.setenv("RANK", "1")
    assert not is_main_process()


def test_every_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert run_module.local_device("auto") == torch.device(
        "cuda"
    )  # one process: torch's own choice
    for name, value in (("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    assert run_module.local_device("auto") == torch.device("cuda", 1)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(InputError, match=r"no GPU for local rank 2: this machine has 2"):
        run_module.local_device("auto")


def test_overwriting_counts_for_the_first_start_of_a_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also on a machine that joined later, which knows of no restart."""
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert not opening._is_restart(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "seven")
    assert not opening._is_restart(tmp_path)
    (tmp_path / "job").write_text(job())
    assert opening._is_restart(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "eight")
    assert not opening._is_restart(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert opening._is_restart(tmp_path)


# ---- real processes -------------------------------------------------------------------------

MODEL = (
    *("model.dropout=0.1", "model.solver=rk2", "model.gamma=ema", "train.accumulate=2"),
    *("train.save_every=3", "train.keep_last=3", "train.workers=2", "train.threads=1"),
)
PATIENCE = 300.0


def wait_until(true: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.01)


def newest(run: Path) -> int:
    """The step of the newest checkpoint."""
    return max((one.step for one in list_checkpoints(run)), default=0)


def family(process: int) -> dict[int, dict[str, str]]:
    """The processes that a process has started and their environments."""
    found: dict[int, dict[str, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            pairs = (folder / "environ").read_text().split("\0")
            if parent == process:
                found[int(folder.name)] = dict(p.split("=", 1) for p in pairs if "=" in p)
    return found


def member(launcher: int, rank: int) -> int:
    """The process of this rank, among those that were started by another."""
    found: list[int] = []

    def look() -> list[int]:
        found[:] = [p for p, about in family(launcher).items() if about.get("RANK") == str(rank)]
        return found

    wait_until(look, f"process {rank}")
    return found[0]


def alive(process: int) -> bool:
    try:
        state = (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def limit_time() -> None:
    """Should these tests be killed, what they started ends by itself."""
    resource.setrlimit(resource.RLIMIT_CPU, (90, 90))


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a group of its own, with one thread; ended in any case."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("processes are looked up in /proc")
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=limit_time,
    )
    try:
        yield process
    finally:
        for each in (*family(process.pid), process.pid):  # torchrun's are in groups of their own
            with suppress(ProcessLookupError):
                os.killpg(os.getpgid(each), signal.SIGKILL)
        process.communicate()


def train_records(run: Path, kind: str = "train") -> list[dict[str, Any]]:
    return [record for record in read_records(run / "metrics.jsonl") if record["kind"] == kind]


def assert_as_uninterrupted(run: Path, straight: Path, steps: int) -> None:
    """Every step once, and the same as in a training that nobody disturbed."""
    found, wanted = train_records(run), train_records(straight)
    assert [record["step"] for record in found] == list(range(1, steps + 1))
    losses = [[record["loss"] for record in records] for records in (found, wanted)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    valid = [train_records(path, "valid") for path in (run, straight)]
    assert [record["step"] for record in valid[0]] == [record["step"] for record in valid[1]]
    assert [r["loss"] for r in valid[0]] == pytest.approx([r["loss"] for r in valid[1]], rel=1e-3)
    weights = [load_file(path / "model.safetensors") for path in (run, straight)]
    for name, tensor in weights[1].items():
        if not name.endswith("kv.bias"):  # half of it has no influence, and follows from rounding
            gap = np.abs(weights[0][name] - tensor).max()
            assert gap <= 1e-2 * np.abs(tensor).max(), name


def test_workers_that_are_killed_interrupted_and_orphaned(
    configure: Configure, silent: Console, tmp_path: Path
) -> None:
    """One training through all that can happen to it; at the end nobody can tell."""
    config = configure(*MODEL, "train.max_steps=5000")
    path, run = tmp_path / "config.json", Path(config.run)
    path.write_text(config.to_json())

    def begin(launcher: int) -> int:
        """Let it save once more; the other process."""
        before = newest(run)
        wait_until(lambda: newest(run) > before, "a checkpoint")
        return member(launcher, 1)

    with started("kutta", "train", str(path)) as launcher:
        os.kill(begin(launcher.pid), signal.SIGKILL)
        _, errors = launcher.communicate(timeout=PATIENCE)
        assert launcher.returncode == 2
        assert errors.startswith("kutta: A worker process was killed by signal 9, perhaps for lack")
        assert errors.count("\n") == 1, errors

    with started("kutta", "train", str(path)) as launcher:
        worker = begin(launcher.pid)
        os.killpg(launcher.pid, signal.SIGINT)  # Ctrl-C: all processes get it
        _, errors = launcher.communicate(timeout=PATIENCE)
        assert (launcher.returncode, errors) == (130, "")
        assert not alive(worker)
    assert train_records(run)[-1]["step"] == newest(run), "saved where it stopped"

    with started("kutta", "train", str(path)) as launcher:
        worker = begin(launcher.pid)
        os.kill(launcher.pid, signal.SIGTERM)
        _, errors = launcher.communicate(timeout=PATIENCE)
        assert (launcher.returncode, errors) == (130, "")
        assert not alive(worker)
    assert train_records(run)[-1]["step"] == newest(run)

    with started("kutta", "train", str(path)) as launcher:
        worker = begin(launcher.pid)
        launcher.kill()
        launcher.wait()
        wait_until(lambda: not alive(worker), "the end of a worker without a launcher")

    steps = newest(run) + 3
    end = configure(*MODEL, f"train.max_steps={steps}", "train.workers=1")
    straight = end.model_copy(update={"run": str(tmp_path / "straight")})
    for each in (end, straight):
        assert train(each, console=silent).step == steps
    assert_as_uninterrupted(run, Path(straight.run), steps)


def torchrun(*options: str) -> tuple[str, ...]:
    return ("torch.distributed.run", "--standalone", "--nproc-per-node=2", *options, "-m", "kutta")


def test_a_killed_worker_is_restarted_by_torchrun_and_no_batch_is_lost(
    configure: Configure, silent: Console, tmp_path: Path
) -> None:
    """With its parameters split; --overwrite counts once, not again with each restart."""
    steps = 60
    config = configure(*MODEL, f"train.max_steps={steps}", "train.shard=true")
    path, run = tmp_path / "config.json", Path(config.run)
    path.write_text(config.to_json())
    command = (*torchrun("--max-restarts=1"), "train", str(path), "--overwrite")
    with started(*command) as agent:
        wait_until(lambda: newest(run) >= 6, "a checkpoint")
        before = newest(run)
        os.kill(member(agent.pid, 1), signal.SIGKILL)
        _, errors = agent.communicate(timeout=PATIENCE)
        assert agent.returncode == 0, errors
        assert before < steps, "it was killed too late"
    log = (run / "train.log").read_text()
    assert log.count("starting:") == log.count("resuming from step") == 1
    assert log.count("2 processes") == 2
    assert list_checkpoints(run)[-1].shards.is_dir()
    straight = config.model_copy(update={"run": str(tmp_path / "straight")})
    single = straight.train.model_copy(update={"workers": 1})
    train(straight.model_copy(update={"train": single}), console=silent)
    assert_as_uninterrupted(run, Path(straight.run), steps)
    cards = [(path / "README.md").read_text() for path in (run, Path(straight.run))]
    sizes = [[line for line in card.splitlines() if "parameters" in line] for card in cards]
    assert sizes[0] == sizes[1] != []


@pytest.mark.slow
def test_two_machines_resume_after_one_has_lost_a_worker(
    configure: Configure, tmp_path: Path
) -> None:
    """Each machine is an agent of torchrun, and counts its own restarts."""
    steps = 200
    config = configure(*MODEL, f"train.max_steps={steps}")
    path, run = tmp_path / "config.json", Path(config.run)
    path.write_text(config.to_json())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--nnodes=2", "--nproc-per-node=1", "--max-restarts=2", "--rdzv-backend=c10d")
    rendezvous = (f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=two", "--local-addr=127.0.0.1")
    command = ("torch.distributed.run", *options, *rendezvous, "-m", "kutta", "train", str(path))
    with started(*command) as one, started(*command) as other:
        for _ in range(2):
            before = newest(run)
            wait_until(lambda before=before: newest(run) >= before + 6, "a checkpoint")
            os.kill(next(iter(family(other.pid))), signal.SIGKILL)
        ends = [agent.communicate(timeout=PATIENCE)[1] for agent in (one, other)]
        assert [one.returncode, other.returncode] == [0, 0], ends
    assert (run / "train.log").read_text().count("resuming from step") == 2
    assert [record["step"] for record in train_records(run)] == list(range(1, steps + 1))


def test_a_mistake_that_all_processes_make_is_said_once(
    configure: Configure, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(configure(*MODEL, "train.accumulate=1").to_json())
    with started(*torchrun(), "train", str(path)) as agent:
        _, errors = agent.communicate(timeout=PATIENCE)
    assert agent.returncode != 0
    said = [line for line in errors.splitlines() if line.startswith(("kutta:", "kutta ("))]
    assert len(said) == 1, errors
    told = (
        "kutta: train.accumulate x train.pieces = 1 micro-batches cannot be divided over "
        "2 processes; "
    )
    assert said[0].startswith(told)
    assert "exitcode  : 2" in errors
    assert "kutta/training" not in errors, "a traceback of ours"
