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
from kutta.limits import available_memory, proc_bytes
from kutta.model.arithmetic import cost_of
from kutta.runs import Run

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # names of glibc's mallopt
_LARGEST = 2**31 - 1


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
    free, held = available_memory(), proc_bytes(Path("/proc/self/status"), "VmData")
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


def check_model_fits(run: Run, device: torch.device, processes: int) -> None:
    """Reject a model whose training needs more memory than there is, before it is allocated.

    Parameters, gradients and Adam's two moments have four bytes each. Sharded ones are divided over
    the processes. On a CPU all processes share the memory.
    """
    known = run.tokenizers
    with torch.device("meta"):  # sizes only: no memory
        parameters = cost_of(run.build_model()).parameters
    copies = 1 if run.config.train.shard else processes
    needed, free = 16 * parameters * copies, available_memory()
    if device.type == "cuda":
        needed, free = needed // processes, torch.cuda.mem_get_info(device)[0]
    if free and needed > free:
        raise InputError(
            f"Training {parameters:,} parameters needs {needed / 1e9:,.1f} GB for weights and "
            f"optimizer alone, but {free / 1e9:,.1f} GB are available; make the model smaller "
            f"(model.d_model, model.ffn, layers, or its vocabulary of {len(known.target):,})."
        )


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
