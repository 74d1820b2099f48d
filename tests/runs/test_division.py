"""How an update is divided: one pure function of settings, device and machine."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kutta.config import Config
from kutta.errors import InputError
from kutta.runs.division import Division, Machine, divide, idle_gpus

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def config(*settings: str) -> Config:
    values = {
        "run": "r",
        "data": {"dir": "d", "source": "a", "target": "b", "max_length": 30},
        "train": {"batch_tokens": 160},
    }
    from kutta.config.mistakes import apply_override

    for setting in settings:
        apply_override(values, setting)
    return Config.parse(values)


BASE, TINY = "model.d_model=512", "model.d_model=128"


@pytest.mark.parametrize(
    ("device", "settings", "wanted"),
    [
        (CPU, ("train.batch_tokens=4096", BASE), 8),
        (CPU, ("train.batch_tokens=4096", TINY), 4),
        (CPU, ("train.batch_tokens=4096", "model.d_model=1024"), 8),
        (CPU, ("train.batch_tokens=4096", "model.d_model=8"), 4),
        (CPU, ("train.batch_tokens=3000", BASE), 4),
        (CPU, ("train.batch_tokens=1023", BASE), 1),
        (CPU, ("train.batch_tokens=160", BASE), 1),
        (CPU, ("train.batch_tokens=4096", BASE, "data.max_length=1023"), 4),
        (CPU, ("train.batch_tokens=4096", BASE, "data.max_length=1024"), 2),
        (CPU, ("train.batch_tokens=4096", BASE, "data.max_length=4095"), 1),
        (CPU, ("train.batch_tokens=4096", BASE, "train.pieces=1"), 1),
        (CPU, ("train.batch_tokens=4096", BASE, "train.pieces=3"), 3),
        (CPU, ("train.batch_tokens=4096", BASE, "train.compile=true"), 1),
        (GPU, ("train.batch_tokens=4096", BASE), 1),
        (GPU, ("train.batch_tokens=4096", BASE, "train.pieces=2"), 2),
    ],
)
def test_a_cpu_gets_micro_batches_that_fit_its_cache(
    device: torch.device, settings: tuple[str, ...], wanted: int
) -> None:
    division = divide(config(*settings), device, Machine(cores=2, threads=2, gpus=1))
    assert division.per_batch == wanted


@pytest.mark.parametrize(
    ("places", "settings", "wanted"),
    [
        (1, ("train.accumulate=4",), 1),
        (2, ("train.accumulate=1",), 1),
        (2, ("train.accumulate=4",), 2),
        (2, ("train.accumulate=1", "train.pieces=4"), 2),
        (3, ("train.accumulate=4",), 2),
        (8, ("train.accumulate=6",), 6),
        (8, ("train.accumulate=7", "train.workers=3"), 3),
        (8, ("train.accumulate=8", "train.workers=1"), 1),
    ],
)
def test_as_many_processes_as_gpus_that_divide_the_micro_batches(
    places: int, settings: tuple[str, ...], wanted: int
) -> None:
    settings = (*settings, "data.max_length=20")
    machine = Machine(cores=places, threads=places, gpus=places)
    assert divide(config(*settings), GPU, machine).processes == wanted
    for reason in ("shard", "compile"):  # where a CPU cannot have lanes
        if reason == "shard" and "train.workers=3" in settings:
            continue  # 3 does not divide 7
        found = divide(config(*settings, f"train.{reason}=true"), CPU, machine)
        assert found.processes == wanted


def test_a_cpu_has_lanes_instead_of_processes() -> None:
    machine = Machine(cores=8, threads=8)
    assert divide(config("train.accumulate=8"), CPU, machine) == Division(1, 1, 8, 8)
    two = divide(config("train.accumulate=8", "train.workers=2"), CPU, machine)
    assert two == Division(1, 2, 1, 4)
    sharded = config("train.accumulate=12", "train.shard=true", "train.threads=2")
    assert divide(sharded, CPU, machine) == Division(1, 4, 1, 2)


@pytest.mark.parametrize(
    ("threads", "settings", "wanted"),
    [
        (1, ("train.accumulate=4",), 1),
        (2, ("train.accumulate=1",), 1),
        (2, ("train.accumulate=4",), 2),
        (2, ("train.accumulate=3",), 1),
        (8, ("train.accumulate=12",), 4),
        (8, ("train.accumulate=5",), 1),
        (8, ("train.accumulate=12", "train.lanes=1"), 1),
        (16, ("train.accumulate=16", "train.batch_tokens=1024", "train.pieces=1"), 8),
        (16, ("train.accumulate=16", "train.batch_tokens=4096", "train.pieces=1"), 2),
        (16, ("train.accumulate=16", "train.batch_tokens=10000", "train.pieces=1"), 1),
        (1, ("train.accumulate=5", "train.lanes=3"), 3),
        (2, ("train.accumulate=1", "train.pieces=2"), 2),
        (16, ("train.accumulate=4", "train.batch_tokens=4096", "train.pieces=4"), 8),
    ],
)
def test_as_many_lanes_as_have_work_for_all_threads(
    threads: int, settings: tuple[str, ...], wanted: int
) -> None:
    machine = Machine(cores=threads, threads=threads)
    assert divide(config(*settings), CPU, machine).lanes == wanted


def test_threads_are_as_asked_or_a_share_of_the_cores() -> None:
    machine = Machine(cores=8, threads=8)
    for workers, wanted in ((1, 8), (3, 2), (16, 1)):
        settings = (f"train.workers={workers}", "train.accumulate=16")
        assert divide(config(*settings), CPU, machine).threads == wanted
        assert divide(config(*settings, "train.threads=5"), CPU, machine).threads == 5


@given(
    accumulate=st.integers(1, 24),
    gpus=st.integers(0, 9),
    cores=st.integers(1, 65),
    cuda=st.booleans(),
    shard=st.booleans(),
)
def test_every_division_has_work_for_everyone(
    accumulate: int, gpus: int, cores: int, cuda: bool, shard: bool
) -> None:
    settings = config(f"train.accumulate={accumulate}", f"train.shard={str(shard).lower()}")
    division = divide(settings, GPU if cuda else CPU, Machine(cores, cores, gpus))
    micro_batches = accumulate * division.per_batch
    assert micro_batches % division.processes == 0
    assert 1 <= division.lanes <= micro_batches
    assert division.processes <= max(1, gpus if cuda else cores)
    assert division.processes == 1 or division.lanes == 1
    assert division.lanes * division.processes <= max(1, cores, gpus)
    assert division.threads >= 1


def test_gpus_without_work_are_told_of() -> None:
    machine = Machine(cores=8, threads=8, gpus=8)
    few = config("train.accumulate=4")
    told = idle_gpus(divide(few, GPU, machine), few, GPU, machine)
    assert told.startswith("Using 4 of 8 GPUs, ")
    assert idle_gpus(divide(few, CPU, machine), few, CPU, machine) == ""
    for setting in ("train.accumulate=8", "train.workers=1", "train.device=cuda:1"):
        other = config(setting)
        assert idle_gpus(divide(other, GPU, machine), other, GPU, machine) == ""


@pytest.mark.parametrize(
    ("settings", "device", "world_size", "said"),
    [
        (("train.lanes=2",), CPU, 0, r"accumulate x train\.pieces = 1 .* train\.lanes = 2"),
        (("train.accumulate=4", "train.lanes=2"), GPU, 0, "needs a single process on a CPU"),
        (("train.accumulate=4", "train.lanes=2"), CPU, 2, "needs a single process on a CPU"),
        (("train.accumulate=2",), CPU, 3, "over 3 processes; start at most 2"),
        (
            ("train.accumulate=4", "train.shard=true"),
            CPU,
            3,
            r"start a divisor of it, or start a new run with train\.pieces = 3",
        ),
    ],
)
def test_what_cannot_share_an_update_is_refused(
    settings: tuple[str, ...], device: torch.device, world_size: int, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        divide(config(*settings), device, Machine(cores=4, threads=4, gpus=4), world_size)
