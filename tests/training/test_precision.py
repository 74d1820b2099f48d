"""Precision: autocast trains, weights stay whole, and the loss scale follows its few rules."""

import copy
import json
import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kutta.config import Config, TrainConfig
from kutta.data.batches import Batch
from kutta.training.checkpoint import Progress, resume, save_checkpoint
from kutta.training.loop import Step, fit
from kutta.training.precision import LossScale, autocast

Configure = Callable[..., Config]
Assemble = Callable[[Config], Any]

STILL = ("model.dropout=0.0", "model.attention_dropout=0.0", "model.relu_dropout=0.0")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


class Fixed:
    """A stream of one batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def take(self, number: int) -> Batch:
        return self.batch

    def epoch_of(self, number: int) -> tuple[int, int]:
        return number, 0


def settings(precision: str) -> TrainConfig:
    return TrainConfig.model_validate({"precision": precision})


def steps(bench: Any, count: int) -> list[Step]:
    return list(islice(fit(bench.trainer, bench.stream, bench.config.train), count))


def moments(bench: Any) -> dict[str, Tensor]:
    """Adam's first moments: after one update, a tenth of the gradients."""
    state = bench.trainer.optimizer.state
    return {name: state[p]["exp_avg"] for name, p in bench.trainer.model.named_parameters()}


@pytest.fixture(autouse=True)
def _products() -> Iterator[None]:
    """Leave the switch for matrix products as it was."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


# ---- the loss scale -------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6500)), max_size=30))
def test_the_scale_doubles_after_2000_finite_updates_and_halves_after_another(
    runs: list[tuple[bool, int]],
) -> None:
    """Runs of finite and of other updates, each run counted at once and in powers of two."""
    scale = LossScale.of(settings("fp16"))
    power, steady = 16, 0
    for finite, count in runs:
        for _ in range(count):
            scale.update(finite)
        if finite:
            doublings, steady = divmod(steady + count, 2000)
            power = min(power + doublings, 24)
        else:
            power, steady = max(power - count, -14), 0
        assert (scale.value, scale.steady) == (2.0**power, steady)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_only_fp16_has_a_scale(precision: str) -> None:
    scale = LossScale.of(settings(precision))
    for finite in [False] * 5 + [True] * 4001:
        scale.update(finite)
    assert scale.value == 1.0
    gradient = torch.tensor([0.1, -3.0])
    scale.remove_from([gradient])
    assert gradient.tolist() == torch.tensor([0.1, -3.0]).tolist()


@given(st.integers(-14, 24), st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20))
def test_removing_the_scale_undoes_it(power: int, values: list[float]) -> None:
    scale, gradient = LossScale(2.0**power), torch.tensor(values, dtype=torch.float64)
    scaled = [gradient * scale.value, -gradient * scale.value]
    scale.remove_from(scaled)
    assert torch.equal(scaled[0], gradient)
    assert torch.equal(scaled[1], -gradient)


@pytest.mark.parametrize("power", [-8, 3, 16, 24])
def test_a_scale_does_not_change_an_update(
    configure: Configure, assemble: Assemble, power: int
) -> None:
    """A power of two moves exponents only, so in fp32 nothing changes, to the last bit."""
    config = configure("train.accumulate=2", "train.clip_norm=0.5", "model.dropout=0.2")
    plain, scaled = assemble(config), assemble(config)
    scaled.trainer.scale = LossScale(2.0**power)
    for one, other in zip(steps(plain, 4), steps(scaled, 4), strict=True):
        assert (one.loss, one.grad_norm) == (other.loss, other.grad_norm)
    pairs = zip(plain.trainer.model.parameters(), scaled.trainer.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_without_a_scale_half_precision_loses_small_gradients(
    configure: Configure, assemble: Assemble
) -> None:
    """The gradients of one update against those in fp32, as if its loss were 2^14 times smaller."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, precision, power in (
        ("full", "fp32", 0),
        ("kept", "fp16", 10),
        ("lost", "fp16", -14),
    ):
        bench = assemble(configure(f"train.precision={precision}", *STILL))
        bench.trainer.scale.value = 2.0**power
        (step,) = steps(bench, 1)
        assert not step.skipped
        found[name] = copy.deepcopy(moments(bench))
    errors = {
        name: max(
            float((found[name][key] - full).norm() / full.norm())
            for key, full in found["full"].items()
            if "encoder" in key
        )
        for name in ("kept", "lost")
    }
    assert errors["kept"] < 0.02
    assert errors["lost"] > 0.2


# ---- training -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "recompute"),
    [*((precision, "false") for precision in PRECISIONS), ("bf16", "true"), ("fp16", "true")],
)
def test_every_precision_learns(
    configure: Configure, assemble: Assemble, precision: str, recompute: str
) -> None:
    config = configure(
        *(f"train.precision={precision}", f"train.recompute={recompute}", "model.solver=rk2"),
        *("model.gamma=learned", "model.d_model=16", "model.ffn=32", "train.lr=0.03"),
        *("train.max_steps=25", "train.warmup=5", "train.label_smoothing=0.0", *STILL),
    )
    bench = assemble(config)
    bench.stream = Fixed(bench.stream.take(0))
    found = steps(bench, 25)
    assert found[0].loss > 2.5
    assert found[-1].loss < 1.5
    assert not any(step.skipped for step in found)
    assert all(math.isfinite(step.grad_norm) for step in found)
    kept = [*bench.trainer.model.parameters()]
    kept += [value for state in bench.trainer.optimizer.state.values() for value in state.values()]
    assert {tensor.dtype for tensor in kept} == {torch.float32}
    assert all(tensor.isfinite().all() for tensor in kept)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_matrix_products_are_in_the_precision_asked_for(precision: str) -> None:
    wanted = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    with autocast(torch.device("cpu"), settings(precision)):
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == wanted
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32, "outside the block"


# ---- TF32 -----------------------------------------------------------------------------------


def test_tf32_is_switched_on_for_its_training_and_off_for_the_next(
    configure: Configure, assemble: Assemble
) -> None:
    for precision, wanted in (
        ("tf32", "high"),
        ("fp32", "highest"),
        ("tf32", "high"),
        ("bf16", "highest"),
    ):
        assemble(configure(f"train.precision={precision}"))
        assert torch.get_float32_matmul_precision() == wanted


def test_tf32_changes_nothing_on_a_cpu(configure: Configure, assemble: Assemble) -> None:
    losses = [
        [step.loss for step in steps(assemble(configure(f"train.precision={precision}")), 4)]
        for precision in ("fp32", "tf32")
    ]
    assert losses[0] == losses[1]


# ---- checkpoints ----------------------------------------------------------------------------


@pytest.mark.parametrize(("steady", "power"), [(1998, 10), (0, 24)], ids=["doubled", "halved"])
def test_a_resumed_training_knows_the_scale_and_how_long_it_held(
    configure: Configure, assemble: Assemble, steady: int, power: int
) -> None:
    """The scale changes within two updates of the checkpoint, and does so in both trainings."""
    config = configure("train.precision=fp16", "train.max_steps=9")
    straight, halted = assemble(config), assemble(config)
    for bench in (straight, halted):
        bench.trainer.scale = LossScale(2.0**power, steady, dynamic=True)
    first = steps(halted, 1)
    save_checkpoint(halted.run, halted.trainer, Progress())
    saved = halted.trainer.scale
    resumed = assemble(config)
    resume(resumed.run, resumed.trainer)
    assert resumed.trainer.scale == saved
    rest, wanted = steps(resumed, 4), steps(straight, 5)
    assert [(s.loss, s.skipped) for s in first + rest] == [(s.loss, s.skipped) for s in wanted]
    assert resumed.trainer.scale == straight.trainer.scale
    assert resumed.trainer.scale.value != 2.0**power
    pairs = zip(
        straight.trainer.model.parameters(), resumed.trainer.model.parameters(), strict=True
    )
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize(
    "scaler",
    [None, {}, {"scale": 1024.0, "growth_factor": 2.0, "_growth_tracker": 7}],
    ids=["nothing", "an unused scaler", "a scaler"],
)
def test_a_checkpoint_of_an_earlier_version_begins_with_a_new_scale(
    configure: Configure, assemble: Assemble, precision: str, scaler: dict[str, float] | None
) -> None:
    config = configure(f"train.precision={precision}")
    bench = assemble(config)
    steps(bench, 1)
    path = save_checkpoint(bench.run, bench.trainer, Progress()).state
    state = json.loads(path.read_text())
    del state["scale"]
    if scaler is not None:
        state["scaler"] = scaler
    path.write_text(json.dumps(state))
    resumed = assemble(config)
    resume(resumed.run, resumed.trainer)
    assert resumed.trainer.step == 1
    assert resumed.trainer.scale == LossScale.of(config.train)
    assert not steps(resumed, 1)[0].skipped
