"""Memory: allocator settings, a memory limit, and out-of-memory errors."""

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import torch

try:
    import resource
except ImportError:  # Windows
    resource = None

from kutta.config import TrainConfig
from kutta.errors import InputError

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # names of glibc's mallopt
_LARGEST = 2**31 - 1
_GROUP = Path("/sys/fs/cgroup")


def keep_freed_memory() -> None:
    """Make glibc keep large freed chunks instead of returning them to the system.

    By default each large tensor is mapped again in every update, and its pages are faulted in and
    zeroed one by one. Without glibc this does nothing.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    # Older versions accept at most 32 MiB. The other setting would do harm on its own.
    if mallopt(_MMAP_THRESHOLD, 1 << 30) or mallopt(_MMAP_THRESHOLD, 1 << 25):
        mallopt(_TRIM_THRESHOLD, _LARGEST)
    mallopt(_ARENA_MAX, 1)  # otherwise each lane would keep the memory it has freed to itself


@contextmanager
def no_more_than_there_is(device: torch.device, processes: int) -> Generator[None]:
    """Limit the memory of this process to its share of what is available.

    Linux overcommits memory and kills a process that uses too much of it. With the limit the
    allocation fails instead, which can be reported. On a GPU and on other systems this does
    nothing.
    """
    free, held = _available(), _bytes(Path("/proc/self/status"), "VmData")
    if resource is None or device.type != "cpu" or not (free and held):
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (before, most) if limit != resource.RLIM_INFINITY]
    lowest = min([held + free // processes, *limits])
    resource.setrlimit(resource.RLIMIT_DATA, (lowest, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def _available() -> int:
    """Available bytes of this machine, or of the container of this process."""
    free = _bytes(Path("/proc/meminfo"), "MemAvailable", "SwapFree")
    try:
        most = int((_GROUP / "memory.max").read_text())
        used = dict(line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
        return min(free, max(0, most - int(used["anon"])))  # other pages can be reclaimed
    except (OSError, ValueError, KeyError):  # no container, or one without a limit
        return free


def _bytes(file: Path, *names: str) -> int:
    """The sum of these lines of a file under /proc, which has them in kB; 0 without the file."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.partition(":")[0] in names)


@contextmanager
def out_of_memory(
    config: TrainConfig, device: torch.device, lanes: int, started: bool
) -> Generator[None]:
    """Turn an out-of-memory error into advice; a run that has `started` keeps its train.pieces."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        ran_out = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not ran_out and "can't allocate memory" not in str(error):  # the message on a CPU
            raise
        many = f"{lanes} parallel micro-batches" if lanes > 1 else "a micro-batch"
        per_batch = max(1, config.pieces)
        smaller = "start a new run with more train.pieces" if started else "raise train.pieces"
        if lanes == 1 and device.type == "cpu":  # more micro-batches would use more lanes
            smaller += " and keep train.lanes = 1"
        advice = [
            *(["set train.lanes = 1"] if lanes > 1 else []),
            *(["set train.recompute = true"] if not config.recompute else []),
            smaller,
        ]
        raise InputError(
            f"There is not enough memory for {many} of {config.micro_tokens:,} tokens "
            f"(train.batch_tokens = {config.batch_tokens:,}, train.pieces = {per_batch}); "
            f"{', or '.join(advice)}."
        ) from error
