"""Memory: keeping what training frees and takes again all the time, and running out of it."""

import ctypes
from collections.abc import Generator
from contextlib import contextmanager

import torch

from kutta.config import TrainConfig
from kutta.errors import InputError

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # names of glibc's mallopt
_LARGEST = 2**31 - 1


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
def out_of_memory(config: TrainConfig, device: torch.device, lanes: int) -> Generator[None]:
    """Say what to lower where there is not enough memory for as many batches as there are lanes."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        ran_out = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not ran_out and "can't allocate memory" not in str(error):  # how the CPU says it
            raise
        many = f"{lanes} micro-batches, side by side," if lanes > 1 else "a micro-batch"
        once = "set train.lanes = 1; if that is not enough, " if lanes > 1 else ""
        # More pieces would take more lanes, and as much memory as before.
        still = ", with train.lanes = 1" if lanes == 1 and device.type == "cpu" else ""
        again = "" if config.recompute else ", or set train.recompute = true"
        raise InputError(
            f"There is not enough memory for {many} of {config.micro_tokens:,} tokens "
            f"(train.batch_tokens = {config.batch_tokens:,}, train.pieces = "
            f"{max(1, config.pieces)}); {once}raise train.pieces{still}{again}."
        ) from error
