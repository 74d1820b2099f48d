"""Lanes: however many compute an update, and whichever is the faster, it is the same update."""

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from kutta.errors import InputError
from kutta.training import loop
from kutta.training.loop import try_largest_batch
from kutta.training.parallel.lanes import Lane, Lanes
from kutta.training.run import train
from tests.training.test_loop import Assemble, Configure, same, steps, weights

CPU = torch.device("cpu")

KINDS: dict[str, tuple[str, ...]] = {
    "euler": ("model.solver=euler",),
    "learned": ("model.solver=rk2", "model.gamma=learned"),
    "recomputed": ("model.solver=rk4", "train.recompute=true"),
    "layers-dropped": ("model.layer_drop=0.5", "model.encoder_layers=3"),
    "layers-shared": ("model.share_layers=true", "model.encoder_layers=2"),
    "stages-separate": ("model.stage_parameters=separate", "model.solver=rk2"),
    "relative": ("model.relative_positions=3",),
    "clipped": ("train.clip_norm=0.1",),
    "bf16": ("train.precision=bf16",),
    "untied": ("model.tie_embeddings=false",),
    "bf16-stages": ("train.precision=bf16", "model.solver=rk2"),
    "bf16-layers-shared": (
        *("train.precision=bf16", "model.share_layers=true", "model.encoder_layers=2"),
    ),
    "fp16-stages-recomputed": (
        *("train.precision=fp16", "train.recompute=true", "model.solver=rk4"),
    ),
    "fp16-recomputed": ("train.precision=fp16", "train.recompute=true"),
}


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Products by one thread, in a lane and without lanes: they give the same to the last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pause(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[int], float]) -> None:
    """Let the n-th micro-batch that is begun wait before its loss."""
    real, count = loop.token_loss, iter(range(10**6))

    def late(*inputs: Any) -> Any:
        time.sleep(seconds(next(count)))
        return real(*inputs)

    monkeypatch.setattr(loop, "token_loss", late)


@pytest.mark.parametrize("kind", KINDS)
def test_lanes_train_to_the_last_bit_as_one_after_another(
    configure: Configure, assemble: Assemble, kind: str
) -> None:
    found: list[Any] = []
    for lanes in (1, 2, 3):
        settings = ("train.accumulate=5", "model.dropout=0.2", *KINDS[kind])
        bench = assemble(configure(*settings, f"train.lanes={lanes}"))
        assert (bench.trainer.lanes is None) == (lanes == 1)
        try_largest_batch(bench.trainer, bench.stream, bench.config.train)
        seen = [(s.loss, s.nll, s.grad_norm, s.tokens) for s in steps(bench, 4)]
        found.append((seen, weights(bench)))
    (seen, plain), *others = found
    assert len({loss for loss, *_ in seen}) == 4
    for other, there in others:
        assert other == seen
        assert same(there, plain)


@pytest.mark.parametrize("slow", [0, 1])
def test_the_order_of_sums_does_not_depend_on_who_is_faster(
    configure: Configure, assemble: Assemble, monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    settings = ("train.accumulate=6", "train.lanes=2")
    even, uneven = (assemble(configure(*settings)) for _ in range(2))
    expected = [step.loss for step in steps(even, 2)]
    pause(monkeypatch, lambda number: 0.1 if number % 3 == slow else 0.0)
    assert [step.loss for step in steps(uneven, 2)] == expected
    assert same(weights(uneven), weights(even))


def test_results_come_in_order_and_all_lanes_take_part(
    configure: Configure, assemble: Assemble
) -> None:
    model = assemble(configure()).trainer.model
    by: dict[int, int] = {}

    def work(lane: Lane, number: int) -> int:
        by[number] = id(lane)
        time.sleep(0.1 if number % 2 else 0.0)
        return number * number

    assert Lanes(model, 2, 2).run([13, 12, 11, 10], work) == [169, 144, 121, 100]
    assert len(set(by.values())) == 2


def test_lanes_share_their_parameters(configure: Configure, assemble: Assemble) -> None:
    bench = assemble(configure("train.accumulate=2", "train.lanes=2"))
    model = bench.trainer.model
    own = {p.data_ptr() for p in model.parameters()}

    def places(lane: Lane, _: int) -> set[int]:
        return {p.data_ptr() for p in lane.model.parameters()}

    assert bench.trainer.lanes.run([0, 1], places) == [own, own]
    steps(bench, 2)
    assert {p.data_ptr() for p in model.parameters()} == own


def test_the_threads_of_a_process_are_shared_out(configure: Configure, assemble: Assemble) -> None:
    model = assemble(configure()).trainer.model

    def threads(_: Lane, __: int) -> int:
        torch.ones(100_000).add_(1)  # where a thread would take over another number
        return torch.get_num_threads()

    lanes = Lanes(model, 2, 4)
    assert lanes.run([0, 1], threads) == [2, 2]
    torch.set_num_threads(3)  # as around a validation
    assert lanes.run([0, 1], threads) == [2, 2]
    torch.set_num_threads(1)
    assert Lanes(model, 3, 2).run([0, 1, 2], threads) == [1, 1, 1]
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_goes_wrong_in_a_lane_ends_all_of_them(
    configure: Configure, assemble: Assemble, place: int
) -> None:
    model = assemble(configure()).trainer.model
    lanes = Lanes(model, 2, 2)

    def work(_: Lane, number: int) -> None:
        if number == place:
            raise MemoryError("so much")

    with pytest.raises(MemoryError, match="so much"):
        lanes.run(range(5), work)
    assert lanes.run([7, 8], lambda _, number: number) == [7, 8]


def test_ctrl_c_ends_lanes_before_their_next_batch(
    configure: Configure, assemble: Assemble
) -> None:
    lanes, begun = Lanes(assemble(configure()).trainer.model, 2, 2), list[int]()

    def work(_: Lane, number: int) -> None:
        begun.append(number)
        time.sleep(0.3)

    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        lanes.run(range(50), work)
    timer.join()
    assert len(begun) <= 4
    assert lanes.run([7, 8], lambda _, number: number) == [7, 8]


def test_lanes_that_are_closed_leave_nothing_behind(
    configure: Configure, assemble: Assemble
) -> None:
    bench = assemble(configure("train.accumulate=2", "train.lanes=2"))
    steps(bench, 1)
    lanes = bench.trainer.lanes
    held = [weakref.ref(lanes), *map(weakref.ref, lanes._lanes[0].model.parameters())]
    lanes.close()
    bench.trainer.lanes = lanes = None
    gc.collect()
    assert not any(reference() is not None for reference in held)


def test_a_training_takes_lanes_by_itself_and_closes_them(configure: Configure) -> None:
    console, before = Console(record=True, width=200), set(threading.enumerate())
    settings = ("train.accumulate=4", "train.threads=2", "train.max_steps=2")
    train(configure(*settings), console=console)
    assert ", 2 lanes" in console.export_text()
    left = set(threading.enumerate()) - before
    assert not any(thread.name.startswith("lane") for thread in left)


def test_too_little_memory_in_a_lane_is_said_as_elsewhere(
    configure: Configure, assemble: Assemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*_: Any) -> None:
        raise torch.OutOfMemoryError("can't allocate memory")

    bench = assemble(configure("train.accumulate=2", "train.lanes=2"))
    monkeypatch.setattr(loop, "token_loss", too_much)
    told = r"for 2 parallel micro-batches of 160 tokens .* set train\.lanes = 1, or"
    with pytest.raises(InputError, match=told):
        try_largest_batch(bench.trainer, bench.stream, bench.config.train)


def test_the_largest_batch_is_tried_in_all_lanes_at_once(
    configure: Configure, assemble: Assemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = assemble(configure("train.accumulate=4", "train.lanes=2"))
    real, inside, most = loop.token_loss, [0], [0]

    def counted(*inputs: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.2)
        inside[0] -= 1
        return real(*inputs)

    monkeypatch.setattr(loop, "token_loss", counted)
    try_largest_batch(bench.trainer, bench.stream, bench.config.train)
    assert most == [2]
    assert all(p.grad is None for p in bench.trainer.model.parameters())


def test_a_run_resumes_exactly_with_another_number_of_lanes(configure: Configure) -> None:
    def trained(name: str, steps: int, lanes: int) -> bytes:
        run = Path(f"{configure().run}-{name}")
        settings = (f"train.max_steps={steps}", f"train.lanes={lanes}", f"run={run}")
        train(configure("train.accumulate=4", "train.workers=1", *settings))
        return (run / "model.safetensors").read_bytes()

    whole = trained("whole", 8, 1)
    assert trained("parts", 4, 2) != whole
    assert trained("parts", 8, 4) == whole
