"""The learning rate: linear warm-up to the peak, then the inverse square root of the step."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kutta.config import TrainConfig
from kutta.training.schedule import learning_rate

WMT14 = TrainConfig(lr=0.002, warmup=16_000, warmup_from=1e-7)


def test_the_values_of_the_wmt14_presets() -> None:
    assert learning_rate(1, WMT14) == pytest.approx(1e-7 + (0.002 - 1e-7) / 16_000)
    assert learning_rate(8_000, WMT14) == pytest.approx((0.002 + 1e-7) / 2)
    assert learning_rate(16_000, WMT14) == 0.002
    assert learning_rate(4 * 16_000, WMT14) == pytest.approx(0.002 / 2)
    assert learning_rate(100 * 16_000, WMT14) == pytest.approx(0.002 / 10)


@pytest.mark.parametrize("warmup", [1, 2, 7, 4000])
def test_the_peak_is_reached_exactly_once_at_the_end_of_the_warm_up(warmup: int) -> None:
    config = TrainConfig(lr=0.005, warmup=warmup)
    rates = [learning_rate(step, config) for step in range(1, 2 * warmup + 3)]
    assert max(rates) == rates[warmup - 1] == 0.005
    assert rates[:warmup] == sorted(set(rates[:warmup]))
    assert rates[warmup - 1 :] == sorted(set(rates[warmup - 1 :]), reverse=True)


@given(st.integers(2, 100_000), st.floats(1e-6, 10.0), st.floats(0.0, 1e-6))
def test_both_sides_meet_at_the_peak(warmup: int, lr: float, start: float) -> None:
    """No jump: the change around the peak is no larger than one step of the warm-up."""
    config = TrainConfig(lr=lr, warmup=warmup, warmup_from=start)
    slope = (lr - start) / warmup
    before, peak, after = (learning_rate(warmup + i, config) for i in (-1, 0, 1))
    assert peak == pytest.approx(lr)
    assert peak - before == pytest.approx(slope, rel=1e-6, abs=1e-12 * lr)
    assert 0 <= peak - after <= lr / warmup


@given(st.integers(1, 10**9), st.integers(1, 10**6))
def test_the_inverse_square_root(step: int, warmup: int) -> None:
    config = TrainConfig(lr=1.0, warmup=warmup)
    if step >= warmup:
        assert learning_rate(step, config) * math.sqrt(step) == pytest.approx(math.sqrt(warmup))
    assert 0 < learning_rate(step, config) <= 1.0 + 1e-12
