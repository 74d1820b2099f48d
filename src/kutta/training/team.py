"""The processes that train one model together, on one machine or on many.

An update consists of micro-batches with fixed numbers; the processes share them out.
Batches, dropout and loss follow from those numbers, so the mathematics of an update is the same
however many processes there are, and a run may go on with another number of them.
"""

import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlparse
from urllib.request import url2pathname

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.rendezvous import rendezvous  # pyright: ignore[reportUnknownVariableType]

from kutta.errors import InputError

MEETING = "KUTTA_MEETING"  # a file:// address where processes of one machine meet
# Others wait for the leader while it prepares text or validates, and that may take its time.
_PATIENCE = timedelta(days=2)
_START = timedelta(minutes=10)  # from the first process of a team to the last


class Lost(InputError):
    """Another process of the team has ended."""

    def __init__(self, reason: str = "") -> None:
        heard = f" ({reason})" if reason else ""
        super().__init__(
            f"Another process of this training has ended, so this one ends too{heard}; the "
            "checkpoints are kept, and the same command goes on from the last."
        )


@dataclass(frozen=True)
class Team:
    """This process (`rank`) among `world`, of which `local_world` are on this machine.

    Rank 0 leads: it alone validates and speaks.
    """

    rank: int = 0
    world: int = 1
    local_world: int = 1
    talk: Any = None  # the gloo group for small numbers; tensors go through the default group

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, numbers: Sequence[int]) -> Sequence[int]:
        """The numbers of this process: every world-th."""
        return numbers[self.rank :: self.world]

    def total(self, *values: float) -> list[float]:
        """The sum of each value over all processes."""
        if self.world == 1:
            return [*values]
        sums = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(sums, group=self.talk)
        return [float(value) for value in sums]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return self.total(float(flag))[0] > 0

    def follow(self, *flags: bool) -> list[bool]:
        """The flags as the leader sees them; all wait for it."""
        if self.world == 1:
            return list(flags)
        told = torch.tensor(flags, dtype=torch.uint8)
        dist.broadcast(told, src=0, group=self.talk)
        return [bool(flag) for flag in told]

    def same(self, text: str) -> str:
        """The leader's text, in all processes."""
        told = [text]
        if self.world > 1:
            dist.broadcast_object_list(told, src=0, group=self.talk)
        return told[0]

    def wait(self) -> None:
        """Go on when all processes are here."""
        self.total(0.0)


ALONE = Team()


def sharers(batches: int, places: int) -> int:
    """How many share the batches of an update evenly, where there is room for so many."""
    return max(n for n in range(1, batches + 1) if batches % n == 0 and n <= max(1, places))


def speaks() -> bool:
    """Whether this process is the one that tells the user what happens."""
    return os.environ.get("RANK", "0") == "0"


def launched() -> bool:
    """Whether this process was started as one of a team, by torchrun or by `kutta train` itself."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def restarts() -> int:
    """How often torchrun has started the processes of this machine anew after one was lost."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def job() -> str:
    """The name of torchrun's job; "" where it was given none."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return "" if name == "none" else name


@contextmanager
def meet(device: torch.device) -> Generator[Team]:
    """Join the other processes that were launched with this one; leave them at the end."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world == 1:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if MEETING in os.environ:
        _come(Path(url2pathname(urlparse(os.environ[MEETING]).path)), rank)
    place = _meeting_place(rank, world)
    # torchrun keeps what was noted before a restart, such as addresses of the dead.
    store = PrefixStore(_agree(place, rank, world), place)
    try:
        with _one_voice(rank, store):
            dist.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                store=PrefixStore("team", store),
                rank=rank,
                world_size=world,
            )
            talk = cast(Any, dist.new_group(backend="gloo", timeout=_PATIENCE))
            yield Team(rank, world, int(os.environ.get("LOCAL_WORLD_SIZE", "1")), talk)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def _one_voice(rank: int, store: Store) -> Generator[None]:
    """Let one process say what went wrong: the leader, or who alone knows it.

    A mistake in the settings or a damaged file shows in all processes alike, and a process that
    ends takes the others with it.
    """
    try:
        yield
    except (InputError, RuntimeError) as error:
        known = error if isinstance(error, InputError) else _lost(error)
        if rank == 0:
            with suppress(RuntimeError):
                store.set(str(known), "said")
            raise known from error.__cause__
        if not isinstance(known, Lost) and not _said(store, str(known)):
            print(f"kutta (process {rank}): {known}", file=sys.stderr)
        sys.exit(2)


def _said(store: Store, sentence: str) -> bool:
    """Whether another process has said it, or says it in a second."""
    time.sleep(1.0)
    try:
        return store.check([sentence]) or store.add(f"{sentence} (others)", 1) > 1
    except RuntimeError:
        return False


def _lost(error: RuntimeError) -> Lost:
    """The sentence for a lost connection; only its words tell it from any other failure."""
    if not any(word in str(error) for word in ("gloo", "NCCL", "onnection")):
        raise error
    return Lost(str(error).strip().splitlines()[0][:200])


def _meeting_place(rank: int, world: int) -> Store:
    """Where processes find each other and leave notes."""
    try:
        address = os.environ.get(MEETING, "env://")
        return next(rendezvous(address, rank, world, timeout=_START))[0]
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"The {world} processes of this training cannot meet ({reason}); start them with "
            "torchrun, or unset RANK and WORLD_SIZE to train with those that kutta starts."
        ) from error


def _agree(place: Store, rank: int, world: int) -> str:
    """A name for this team that no team before it had, in a store that may remember others.

    Everyone says hello with a word of its own. The leader answers each word, also those of the
    dead, until all that live have told it that they heard its answer: its own word, the name.
    """
    own = uuid.uuid4().hex
    if rank > 0:
        place.set(f"hello-{rank}", own)
        try:
            name = place.get(f"answer-{own}").decode()  # waits
        except RuntimeError as error:
            raise Lost(str(error).splitlines()[0][:200]) from error
        place.set(f"heard-{name}-{rank}", "")
        return name
    missing, deadline = set(range(1, world)), time.monotonic() + _START.total_seconds()
    while missing:
        for other in [*missing]:
            if place.check([f"hello-{other}"]):
                place.set(f"answer-{place.get(f'hello-{other}').decode()}", own)
            if place.check([f"heard-{own}-{other}"]):
                missing.remove(other)
        if time.monotonic() > deadline:
            raise InputError(
                f"{len(missing)} of the {world} processes of this training did not come within "
                f"{_START.total_seconds() / 60:.0f} minutes; start them together."
            )
        time.sleep(0.02)
    return own


def _come(place: Path, rank: int) -> None:
    """Tell the leader on this machine that this process has started, and end when it ends."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())
    place.with_name(f"here-{rank}").touch()
    if rank > 0:
        threading.Thread(target=_end_with_leader, daemon=True).start()


def _end_with_leader() -> None:
    """The leader holds the other end of standard input, so it closes with it, however it ends."""
    os.read(0, 1)
    os._exit(2)


def _loopback() -> str:
    """The name of the loopback interface."""
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
