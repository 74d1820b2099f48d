"""Memory: keeping what training frees and takes again all the time, and running out of it."""

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
    """Ask glibc not to give large freed blocks back to the system between updates.

    By default each large tensor is mapped anew, and its pages are faulted in and zeroed one by one
    in every update. Elsewhere than on glibc this does nothing.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    # Older versions refuse more than 32 MiB. Without it, the other setting alone would do harm.
    if mallopt(_MMAP_THRESHOLD, 1 << 30) or mallopt(_MMAP_THRESHOLD, 1 << 25):
        mallopt(_TRIM_THRESHOLD, _LARGEST)
    mallopt(_ARENA_MAX, 1)  # or each lane would keep for itself what it has freed


@contextmanager
def no_more_than_there_is(device: torch.device, processes: int) -> Generator[None]:
    """Let this one of some processes take no more memory than the machine has for it.

    Linux promises memory that it does not have, and kills who takes it without a word. Here it
    refuses instead, which can be told. On a GPU and on other systems this does nothing.
    """
    room, held = _room(), _bytes(Path("/proc/self/status"), "VmData")
    if resource is None or device.type != "cpu" or not (room and held):
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (before, most) if limit != resource.RLIM_INFINITY]
    lowest = min([held + room // processes, *limits])
    resource.setrlimit(resource.RLIMIT_DATA, (lowest, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def _room() -> int:
    """Bytes that this machine has left, or the container that this process is in."""
    room = _bytes(Path("/proc/meminfo"), "MemAvailable", "SwapFree")
    try:
        most = int((_GROUP / "memory.max").read_text())
        used = dict(line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
        return min(room, max(0, most - int(used["anon"])))  # other pages are given up when needed
    except (OSError, ValueError, KeyError):  # no container, or one without a limit
        return room


def _bytes(file: Path, *names: str) -> int:
    """The sum of these lines of a file under /proc, which has them in kB; 0 without the file."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.partition(":")[0] in names)


@contextmanager
def out_of_memory(
    config: TrainConfig, device: torch.device, lanes: int, begun: bool
) -> Generator[None]:
    """Say what to do where there is not enough memory for a micro-batch in every lane.

    A run that has begun keeps its pieces.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        ran_out = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not ran_out and "can't allocate memory" not in str(error):  # how the CPU says it
            raise
        many = f"{lanes} micro-batches side by side" if lanes > 1 else "a micro-batch"
        pieces = max(1, config.pieces)
        smaller = "begin another run with more train.pieces" if begun else "raise train.pieces"
        if lanes == 1 and device.type == "cpu":  # more pieces would take more lanes
            smaller += " and keep train.lanes = 1"
        advice = [
            *(["set train.lanes = 1"] if lanes > 1 else []),
            *(["set train.recompute = true"] if not config.recompute else []),
            smaller,
        ]
        raise InputError(
            f"There is not enough memory for {many} of {config.micro_tokens:,} tokens "
            f"(train.batch_tokens = {config.batch_tokens:,}, train.pieces = {pieces}); "
            f"{', or '.join(advice)}."
        ) from error
