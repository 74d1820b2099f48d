"""How the micro-batches of an update are divided over processes, lanes and threads.

An update is `train.accumulate` batches of `train.pieces` micro-batches each. There is one process
per GPU. On a CPU one process computes several micro-batches in parallel, in lanes: there is one
copy of the model, and threads do not synchronise at every product.
"""

import math
from dataclasses import dataclass

import torch

from kutta.config import Config, TrainConfig
from kutta.data.workers import cores
from kutta.errors import InputError

_STATES = 1 << 18  # tokens x d_model of a micro-batch on a CPU: 1 MiB of fp32 per tensor of states
_FEW, _MANY = 512, 1024  # tokens: fewer make products slow, more leave lanes idle
_ANYWHERE, _PER_CORE = 8, 4  # processes on any machine, and per core of a large one
_AT_ONCE = 8192  # tokens in all lanes by default, because memory grows with them


@dataclass(frozen=True)
class Machine:
    """The resources of a machine: cores, GPUs, and the threads that torch would use."""

    cores: int
    threads: int
    gpus: int = 0

    @classmethod
    def here(cls) -> "Machine":
        """The resources that this process may use."""
        return cls(cores(), torch.get_num_threads(), torch.cuda.device_count())


@dataclass(frozen=True)
class Division:
    """Micro-batches per batch, processes on this machine, lanes and threads of each process."""

    per_batch: int
    processes: int
    lanes: int
    threads: int


def divide(config: Config, device: torch.device, machine: Machine, world_size: int = 0) -> Division:
    """How updates are divided on a device; a launcher gives `world_size`."""
    settings = config.train
    per_batch = settings.pieces or _per_batch(config, device)
    micro_batches, tokens = settings.accumulate * per_batch, settings.batch_tokens // per_batch
    processes = (
        world_size or settings.workers or _processes(settings, micro_batches, device, machine)
    )
    if not world_size:
        _check_machine(processes, device, machine)
    _check(settings, micro_batches, processes, device)
    threads = settings.threads or machine.threads
    if processes > 1 and not (settings.threads or world_size):  # else it has set the number
        threads = max(1, machine.cores // processes)
    parallel = device.type == "cpu" and processes == 1 and not settings.compile
    lanes = _lanes(settings, micro_batches, tokens, threads) if parallel else 1
    return Division(per_batch, processes, lanes, threads)


def idle_gpus(division: Division, config: Config, device: torch.device, machine: Machine) -> str:
    """A message if some GPUs are idle because an update has too few micro-batches, else ""."""
    settings = config.train
    chosen = settings.workers or settings.device not in ("auto", "cuda")
    if device.type != "cuda" or chosen or division.processes >= machine.gpus:
        return ""
    return (
        f"Using {division.processes} of {machine.gpus} GPUs, because an update has "
        f"train.accumulate x train.pieces = {settings.accumulate * division.per_batch} "
        f"micro-batches; make it a multiple of {machine.gpus} to use all."
    )


def _per_batch(config: Config, device: torch.device) -> int:
    """Micro-batches per batch: on a CPU a power of two that makes states fit a core's cache."""
    settings = config.train
    if device.type != "cpu" or settings.compile:  # GPUs have memory, compiled code few shapes
        return 1
    best = min(max(_FEW, _STATES // config.model.d_model), _MANY)
    least = max(best, config.data.max_length + 1)
    return 1 << max(0, (settings.batch_tokens // least).bit_length() - 1)


def _processes(
    settings: TrainConfig, micro_batches: int, device: torch.device, machine: Machine
) -> int:
    """The largest divisor of the micro-batches up to the number of GPUs, or cores without lanes."""
    if settings.device not in ("auto", device.type):
        return 1  # a single device was chosen by its index
    most = 1
    if device.type == "cuda":
        most = machine.gpus
    elif device.type == "cpu" and (settings.shard or settings.compile):
        most = machine.cores // max(1, settings.threads)
    divisors = (n for n in range(1, micro_batches + 1) if micro_batches % n == 0)
    return max(n for n in divisors if n <= max(1, most))


def _lanes(settings: TrainConfig, micro_batches: int, micro_tokens: int, threads: int) -> int:
    """The number of lanes that keeps all threads busiest, limited by the tokens in memory."""
    if settings.lanes:
        return settings.lanes
    most = min(micro_batches, threads, max(1, _AT_ONCE // micro_tokens))
    # The time of an update if n threads were n times as fast as one; of equals, the most lanes.
    return min(
        range(1, most + 1), key=lambda n: (math.ceil(micro_batches / n) / (threads // n), -n)
    )


def _check_machine(processes: int, device: torch.device, machine: Machine) -> None:
    """Reject more processes than this machine has use for, before the first is started."""
    on_gpus = device.type == "cuda"
    most = machine.gpus if on_gpus else max(_ANYWHERE, _PER_CORE * machine.cores)
    if processes > max(1, most):
        has = f"{machine.gpus} GPUs" if on_gpus else f"{machine.cores} cores"
        raise InputError(
            f"train.workers = {processes} is more than this machine, with {has}, can use; set "
            f"train.workers = 0, or at most {max(1, most)}."
        )


def _check(settings: TrainConfig, micro_batches: int, processes: int, device: torch.device) -> None:
    """Reject a division that does not work."""
    if settings.lanes > 1 and (device.type != "cpu" or processes > 1 or settings.compile):
        raise InputError(
            f"train.lanes = {settings.lanes} needs a single process on a CPU without compilation; "
            "set train.lanes = 0."
        )
    if settings.lanes > micro_batches:
        raise InputError(
            f"train.accumulate x train.pieces = {micro_batches} micro-batches cannot be divided "
            f"over train.lanes = {settings.lanes}; set train.lanes = 0."
        )
    # All ranks gather sharded parameters at the same time, for each micro-batch.
    if micro_batches < processes or (settings.shard and micro_batches % processes):
        wanted = "a divisor of it" if settings.shard else f"at most {micro_batches}"
        per_batch = processes // math.gcd(processes, settings.accumulate)
        raise InputError(
            f"train.accumulate x train.pieces = {micro_batches} micro-batches cannot be divided "
            f"over {processes} processes; start {wanted}, or start a new run with train.pieces = "
            f"{per_batch}."
        )
