"""Dropout: its rate, its mean, its determinism, on and off."""

import pytest
import torch
from torch import nn

from kutta.model.dropout import Dropout, ReluDropout

COUNT = 400_000
RATES = [0.02, 0.1, 0.3, 0.5, 0.9]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(11)


def deviation(p: float, count: int = COUNT) -> float:
    """Standard deviation of the share dropped among `count` elements."""
    return (p * (1 - p) / count) ** 0.5


@pytest.mark.parametrize("p", RATES)
def test_the_share_dropped_is_p(p: float) -> None:
    dropped = (Dropout(p)(torch.ones(COUNT)) == 0).double().mean().item()
    assert abs(dropped - p) < 4.5 * deviation(p) + 2**-17


@pytest.mark.parametrize("p", RATES)
def test_each_of_the_four_elements_of_a_draw_is_dropped_at_rate_p(p: float) -> None:
    dropped = (Dropout(p)(torch.ones(COUNT)) == 0).double().view(-1, 4)
    for rate in dropped.mean(0).tolist():
        assert abs(rate - p) < 4.5 * deviation(p, COUNT // 4) + 2**-17


@pytest.mark.parametrize("kind", [Dropout, ReluDropout])
def test_the_scale_is_not_rounded_before_it_is_applied(kind: type[Dropout]) -> None:
    x = torch.linspace(1, 2, 1000, dtype=torch.bfloat16)
    out = kind(0.1)(x)
    scale = 65536 / (65536 - 6554)
    kept = out != 0
    assert torch.equal(out[kept], (x.double() * scale).bfloat16()[kept])


@pytest.mark.parametrize("lag", [1, 2, 3, 4])
def test_neighbours_are_dropped_independently(lag: int) -> None:
    p = 0.3
    dropped = (Dropout(p)(torch.ones(COUNT)) == 0).double()
    both = (dropped[lag:] * dropped[:-lag]).mean().item()
    assert abs(both - p * p) < 6 * deviation(p * p)


@pytest.mark.parametrize("p", RATES)
def test_the_mean_is_preserved(p: float) -> None:
    """Survivors carry 1 / (1 - p), to within the sixteen bits of a draw."""
    out = Dropout(p)(torch.full((COUNT,), 3.0, dtype=torch.float64))
    assert set(out.unique().tolist()) == {0.0, out.max().item()}
    assert out.max().item() == pytest.approx(3 / (1 - p), rel=2**-16 / (1 - p))
    assert abs(out.mean().item() - 3.0) < 4.5 * 3 * deviation(p) / (1 - p)


def test_off_in_evaluation_and_at_rate_zero() -> None:
    x = torch.randn(7, 5)
    assert Dropout(0.4).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


def test_everything_goes_at_rate_one() -> None:
    assert torch.equal(Dropout(1.0)(torch.randn(9)), torch.zeros(9))


def test_the_seed_decides() -> None:
    x = torch.ones(1000)
    torch.manual_seed(5)
    first, second = Dropout(0.5)(x), Dropout(0.5)(x)
    torch.manual_seed(5)
    assert torch.equal(Dropout(0.5)(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 1), (7, 3), (2, 3, 5), (0, 4), (4, 1, 1)])
def test_any_number_of_elements(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    out = Dropout(0.5)(x)
    assert out.shape == x.shape
    assert all(value in (0.0, 2.0) for value in out.flatten().tolist())


def test_views_that_are_not_contiguous() -> None:
    x = torch.randn(60, 50).t()[::2]
    out = Dropout(0.25)(x)
    kept = out != 0
    torch.testing.assert_close(out[kept], x[kept] / 0.75)
    assert 0.15 < 1 - kept.double().mean() < 0.35


def test_the_gradient_has_the_mask_of_the_forward_pass() -> None:
    x = torch.randn(501, requires_grad=True)
    out = Dropout(0.3)(x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad == 0, out == 0)
    torch.testing.assert_close(x.grad, torch.where(out == 0, 0.0, 1 / 0.7), rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_type_is_kept(dtype: torch.dtype) -> None:
    out = Dropout(0.5)(torch.ones(33, dtype=dtype))
    assert out.dtype == dtype
    assert set(out.tolist()) == {0.0, 2.0}


def test_it_agrees_with_the_stock_module_in_mean_and_variance() -> None:
    x = torch.randn(COUNT)
    ours, stock = Dropout(0.2)(x), nn.Dropout(0.2)(x)
    assert ours.mean().item() == pytest.approx(stock.mean().item(), abs=0.01)
    assert ours.std().item() == pytest.approx(stock.std().item(), rel=0.01)
