"""How the micro-batches of an update are shared: over processes, lanes and threads.

An update is `train.accumulate` batches, each cut into `train.pieces` micro-batches. GPUs get a
process each. A CPU has one process, which computes several micro-batches side by side in lanes: it
has the model once, and no thread waits for another at every product.
"""

import math
import os
from dataclasses import dataclass

import torch

from kutta.config import Config, TrainConfig
from kutta.errors import InputError

_STATES = 1 << 18  # tokens x d_model of a micro-batch on a CPU: 1 MiB of fp32 per tensor of states
_FEW, _MANY = 512, 1024  # tokens: fewer make products slow, more leave lanes without work
_AT_ONCE = 8192  # tokens in all lanes, where nobody chose their number: memory grows with them


@dataclass(frozen=True)
class Machine:
    """What there is to share the work: cores and GPUs, and the threads that torch would use."""

    cores: int
    threads: int
    gpus: int = 0

    @classmethod
    def here(cls) -> "Machine":
        """This machine, as far as this process may use it."""
        affinity = getattr(os, "sched_getaffinity", None)
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        return cls(cores, torch.get_num_threads(), torch.cuda.device_count())


@dataclass(frozen=True)
class Division:
    """Micro-batches of a batch, processes of this machine, lanes and threads of each process."""

    pieces: int
    processes: int
    lanes: int
    threads: int


def divide(config: Config, device: torch.device, machine: Machine, world_size: int = 0) -> Division:
    """How updates are computed on a device; `world_size` where a launcher has decided that."""
    settings = config.train
    pieces = settings.pieces or _pieces(config, device)
    micro_batches, micro_tokens = settings.accumulate * pieces, settings.batch_tokens // pieces
    processes = (
        world_size or settings.workers or _processes(settings, micro_batches, device, machine)
    )
    _check(settings, micro_batches, processes, device)
    threads = settings.threads or machine.threads
    if processes > 1 and not settings.threads:
        threads = max(1, machine.cores // processes)
    alone = device.type == "cpu" and processes == 1 and not settings.compile
    lanes = _lanes(settings, micro_batches, micro_tokens, threads) if alone else 1
    return Division(pieces, processes, lanes, threads)


def idle_gpus(division: Division, config: Config, device: torch.device, machine: Machine) -> str:
    """A sentence where GPUs have nothing to do, because an update has too few micro-batches."""
    settings = config.train
    chosen = settings.workers or settings.device not in ("auto", "cuda")
    if device.type != "cuda" or chosen or division.processes >= machine.gpus:
        return ""
    return (
        f"{division.processes} of {machine.gpus} GPUs in use: train.accumulate x train.pieces = "
        f"{settings.accumulate * division.pieces} is what they share; for all of them make it a "
        f"multiple of {machine.gpus}."
    )


def _pieces(config: Config, device: torch.device) -> int:
    """Micro-batches of a batch: on a CPU a power of two that makes states fit a core's cache."""
    settings = config.train
    if device.type != "cpu" or settings.compile:  # a GPU has room, compiled code has few shapes
        return 1
    best = min(max(_FEW, _STATES // config.model.d_model), _MANY)
    least = max(best, config.data.max_length + 1)
    return 1 << max(0, (settings.batch_tokens // least).bit_length() - 1)


def _processes(
    settings: TrainConfig, micro_batches: int, device: torch.device, machine: Machine
) -> int:
    """The largest divisor of the micro-batches for which there are GPUs, or cores without lanes."""
    if settings.device not in ("auto", device.type):
        return 1  # one device was chosen by its number
    places = 1
    if device.type == "cuda":
        places = machine.gpus
    elif device.type == "cpu" and (settings.shard or settings.compile):
        places = machine.cores // max(1, settings.threads)
    divisors = (n for n in range(1, micro_batches + 1) if micro_batches % n == 0)
    return max(n for n in divisors if n <= max(1, places))


def _lanes(settings: TrainConfig, micro_batches: int, micro_tokens: int, threads: int) -> int:
    """As many lanes as have work for all threads to the end, up to a number of tokens at once."""
    if settings.lanes:
        return settings.lanes
    most = min(micro_batches, threads, max(1, _AT_ONCE // micro_tokens))
    # The time of an update, were n threads n times as fast as one; of equals, the most lanes.
    return min(
        range(1, most + 1), key=lambda n: (math.ceil(micro_batches / n) / (threads // n), -n)
    )


def _check(settings: TrainConfig, micro_batches: int, processes: int, device: torch.device) -> None:
    """Refuse numbers that cannot share an update."""
    if settings.lanes > 1 and (device.type != "cpu" or processes > 1 or settings.compile):
        raise InputError(
            f"train.lanes = {settings.lanes} is for one process on a CPU that does not compile; "
            "set train.lanes = 0."
        )
    if settings.lanes > micro_batches:
        raise InputError(
            f"train.accumulate x train.pieces = {micro_batches} cannot be shared by train.lanes = "
            f"{settings.lanes}; set train.lanes = 0, for as many as have work."
        )
    # Split parameters are put together for each batch by all processes at once.
    if micro_batches < processes or (settings.shard and micro_batches % processes):
        wanted = "a divisor of it" if settings.shard else f"at most {micro_batches}"
        pieces = processes // math.gcd(processes, settings.accumulate)
        raise InputError(
            f"train.accumulate x train.pieces = {micro_batches} cannot be shared by {processes} "
            f"processes; start {wanted}, or begin a run with train.pieces = {pieces}."
        )
