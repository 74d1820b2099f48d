"""The process group: the ranks that train one model together, on one machine or several.

An update consists of numbered micro-batches, which are divided over the ranks. Batches, dropout
and loss depend only on these numbers, so an update is the same for any number of ranks, and a run
may resume with another number of them.
"""

import os
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.rendezvous import rendezvous  # pyright: ignore[reportUnknownVariableType]

from kutta.errors import InputError

T = TypeVar("T")

# The other ranks wait while rank 0 prepares text or validates, which may take long.
_TIMEOUT = timedelta(days=2)
_START_TIMEOUT = timedelta(minutes=10)  # from the first rank to the last


class LostRank(InputError):
    """Another rank of the process group has exited."""

    def __init__(self, reason: str = "") -> None:
        details = f" ({reason})" if reason else ""
        super().__init__(
            f"Another rank of this process group has exited, so this one exits too{details}; the "
            "checkpoints are kept, so run the same command to resume."
        )


@dataclass(frozen=True)
class ProcessGroup:
    """This rank of `world_size`, of which `local_world_size` are on this machine.

    Only rank 0, the main one, validates and reports.
    """

    rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    gloo: Any = None  # the group for scalars; tensors are sent through the default group

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def share(self, numbers: Sequence[int]) -> Sequence[int]:
        """The numbers for this rank: every world_size-th."""
        return numbers[self.rank :: self.world_size]

    def sum(self, *values: float) -> list[float]:
        """The sum of each value over all ranks."""
        if self.world_size == 1:
            return [*values]
        sums = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(sums, group=self.gloo)
        return [float(value) for value in sums]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return self.sum(float(flag))[0] > 0

    def broadcast(self, *values: T) -> list[T]:
        """The values of rank 0, on all ranks."""
        sent = [*values]
        if self.world_size > 1:
            dist.broadcast_object_list(sent, src=0, group=self.gloo)
        return sent


SINGLE = ProcessGroup()


def is_launched() -> bool:
    """Whether a launcher has started this process as a rank."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_main_process() -> bool:
    """Whether this process is the one that reports to the user."""
    return os.environ.get("RANK", "0") == "0"


def job() -> str:
    """The name of the launcher's job; "" if it has none."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return "" if name == "none" else name


@contextmanager
def join(device: torch.device) -> Generator[ProcessGroup]:
    """Join the process group of the ranks launched with this one; leave it at the end."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world_size == 1:
        yield SINGLE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = _rendezvous(rank, world_size)
    try:
        with _one_report(rank, PrefixStore("errors", store)):
            dist.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                store=PrefixStore("group", store),
                rank=rank,
                world_size=world_size,
            )
            gloo = cast(Any, dist.new_group(backend="gloo", timeout=_TIMEOUT))
            local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
            yield ProcessGroup(rank, world_size, local, gloo)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _rendezvous(rank: int, world_size: int) -> Store:
    """The rendezvous store, at the address that the launcher has set."""
    try:
        return next(rendezvous("env://", rank, world_size, timeout=_START_TIMEOUT))[0]
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"The rendezvous of {world_size} ranks failed ({reason}); start them with torchrun, or "
            "unset RANK and WORLD_SIZE."
        ) from error


@contextmanager
def _one_report(rank: int, store: Store) -> Generator[None]:
    """Let one rank report an error: rank 0, or the only rank that has it.

    A wrong setting or a damaged file is an error on all ranks, and a rank that exits makes the
    others fail too.
    """
    try:
        yield
    except (InputError, RuntimeError) as error:
        known = error if isinstance(error, InputError) else _lost(error)
        if rank == 0 or not _is_reported(store, known):
            with suppress(RuntimeError):
                store.set(str(known), "reported")
            known.rank = rank
            raise known from error.__cause__
        sys.exit(2)


def _is_reported(store: Store, error: InputError) -> bool:
    """Whether another rank reports it, or will within a second."""
    if isinstance(error, LostRank):
        return True
    time.sleep(1.0)
    try:
        return store.check([str(error)]) or store.add(f"{error} (others)", 1) > 1
    except RuntimeError:
        return False


def _lost(error: RuntimeError) -> LostRank:
    """The error for a lost connection, which is recognised by its message."""
    if not any(word in str(error) for word in ("gloo", "NCCL", "onnection")):
        raise error
    return LostRank(str(error).strip().splitlines()[0][:200])
