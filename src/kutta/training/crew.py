"""Worker processes on this machine, started by `kutta train` itself.

Each of several GPUs needs a process of its own. A CPU has lanes instead, in one process that has
the model once, except where parameters are to be split or layers compiled.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import torch

from kutta.config import TrainConfig
from kutta.data.workers import cores
from kutta.errors import InputError
from kutta.runs import Run
from kutta.training.team import MEETING, Lost, sharers


def crew_size(config: TrainConfig, device: torch.device) -> int:
    """How many processes of this machine share an update.

    By itself the largest divisor of its micro-batches for which there are GPUs, or cores without
    lanes.
    """
    if config.workers:
        return config.workers
    if config.device not in ("auto", device.type):
        return 1  # one device was chosen by its number
    if device.type == "cuda":
        return sharers(config.micro_batches, torch.cuda.device_count())
    if device.type == "cpu" and (config.shard or config.compile):
        return sharers(config.micro_batches, cores() // max(1, config.threads))
    return 1


def idle_gpus(config: TrainConfig, device: torch.device, workers: int) -> str:
    """A sentence where GPUs have nothing to do, because an update has too few micro-batches."""
    there = torch.cuda.device_count() if device.type == "cuda" else 1
    if config.workers or config.device not in ("auto", "cuda") or workers >= there:
        return ""
    return (
        f"{workers} of {there} GPUs in use: train.accumulate x train.pieces = "
        f"{config.micro_batches} is what they share; for all of them make it a multiple of {there}."
    )


def threads_of(config: TrainConfig, workers: int) -> int:
    """CPU threads of each process: as asked, or its share of the cores."""
    return config.threads or max(1, cores() // workers)


class Crew:
    """The processes beside this one, which is rank 0."""

    def __init__(self, run: Path, about: dict[str, str], workers: int, folder: Path) -> None:
        self._folder = folder
        command = [sys.executable, "-m", "kutta", "train", str(Run.config_file(run))]
        self._others = [
            subprocess.Popen(
                command,
                env=os.environ | about | _place(rank),
                stdin=subprocess.PIPE,  # held open: how a worker knows that this process lives
                stdout=subprocess.DEVNULL,
            )
            for rank in range(1, workers)
        ]

    def arrive(self) -> None:
        """Wait until all have started, or one has failed to."""
        while len(list(self._folder.glob("here-*"))) < len(self._others):
            if any(other.poll() is not None for other in self._others):
                raise Lost
            time.sleep(0.01)

    def leave(self) -> None:
        """Wait until all have ended by themselves."""
        for other in self._others:
            other.wait()

    def fate(self) -> str:
        """What became of the process that was lost."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            codes = [code for other in self._others if (code := other.poll())]
            if codes and codes[0] < 0:
                return (
                    f"was ended by signal {-codes[0]}, perhaps for lack of memory: if so, lower "
                    "train.workers or set train.recompute = true"
                )
            if codes:
                return "failed, as its message says"
            time.sleep(0.05)
        return "does not answer any more"

    def end(self) -> None:
        """End those that are left: without this process they have nothing to go on with."""
        for other in self._others:
            other.kill()
            other.communicate()


@contextmanager
def crew(run: Path, workers: int, threads: int) -> Generator[Crew]:
    """Make this process rank 0 of `workers`, and start the others: each trains in the same run."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="kutta-") as folder:
        about = {
            MEETING: (Path(folder) / "meeting").as_uri(),
            "WORLD_SIZE": str(workers),
            "LOCAL_WORLD_SIZE": str(workers),
            "OMP_NUM_THREADS": str(threads),
        }
        started = Crew(run, about, workers, Path(folder))
        os.environ.update(about | _place(0))
        try:
            yield started
            started.leave()
        except Lost as lost:
            raise InputError(
                f"A worker process {started.fate()}. The checkpoints are kept; run the same "
                "command to go on."
            ) from lost
        finally:
            started.end()
            os.environ.clear()
            os.environ.update(before)


def _place(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank)}
