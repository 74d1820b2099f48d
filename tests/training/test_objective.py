"""The chunked loss equals torch's cross-entropy on all logits at once, and so do its gradients."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from kutta.training import objective
from kutta.training.objective import token_loss

PAD = 0


def example(
    T: int = 5, B: int = 4, d: int = 6, V: int = 11, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    """hidden (T, B, d), weight (V, d), targets (B, T): rows end in padding, one is all padding."""
    random = torch.Generator().manual_seed(3)
    hidden = torch.randn(T, B, d, generator=random, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, d, generator=random, dtype=dtype, requires_grad=True)
    targets = torch.randint(1, V, (B, T), generator=random)
    for row in range(1, B):
        targets[row, max(0, T - row * T // (B - 1)) :] = PAD
    return hidden, weight, targets


def reference(
    hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The same two sums from full logits (T, B, V)."""
    logits = (hidden @ weight.t()).flatten(0, 1)
    rest: dict[str, Any] = {"ignore_index": PAD, "reduction": "sum"}
    flat = targets.t().reshape(-1)
    smoothed = functional.cross_entropy(logits, flat, label_smoothing=smoothing, **rest)
    return smoothed, functional.cross_entropy(logits, flat, **rest)


def gradients(loss: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("elements", [1, 11, 22, 35, 77, 10**6])
def test_loss_and_gradients_equal_cross_entropy_on_full_logits(
    monkeypatch: pytest.MonkeyPatch, elements: int, smoothing: float, dtype: torch.dtype
) -> None:
    """`elements` makes chunks of 1, 1, 2, 3 and 7 rows (11 rows are not padding), and one chunk."""
    monkeypatch.setattr(objective, "_CHUNK_ELEMENTS", elements)
    hidden, weight, targets = example(dtype=dtype)
    found = token_loss(hidden, weight, targets, PAD, smoothing)
    wanted = reference(hidden, weight, targets, smoothing)
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 0.0}
    torch.testing.assert_close((found.smoothed, found.nll), wanted, **close)
    close["atol"] = close["atol"] or 1e-14
    torch.testing.assert_close(
        gradients(found.smoothed / 7, hidden, weight),
        gradients(wanted[0] / 7, hidden, weight),
        **close,
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(2, 40), st.floats(0, 0.99), st.data())
def test_any_shape(T: int, B: int, V: int, smoothing: float, data: st.DataObject) -> None:
    targets = torch.tensor(
        data.draw(st.lists(st.integers(0, V - 1), min_size=B * T, max_size=B * T))
    ).view(B, T)
    hidden, weight, _ = example(T, B, 3, V, torch.float64)
    found = token_loss(hidden, weight, targets, PAD, smoothing)
    wanted = reference(hidden, weight, targets, smoothing)
    torch.testing.assert_close((found.smoothed, found.nll), wanted, rtol=1e-10, atol=1e-10)


def test_smoothing_by_hand() -> None:
    """Two tokens of equal logits: log p = -log 2 for both, whatever the smoothing."""
    hidden, weight = torch.ones(1, 1, 2), torch.zeros(2, 2)
    loss = token_loss(hidden, weight, torch.tensor([[1]]), PAD, 0.3)
    assert loss.smoothed.item() == pytest.approx(math.log(2))
    # p = (1/4, 3/4), q = (0.2, 0.8) with V = 2 and eps = 0.4
    weight = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]])
    loss = token_loss(hidden, weight, torch.tensor([[1]]), PAD, 0.4)
    assert loss.smoothed.item() == pytest.approx(0.2 * math.log(4) + 0.8 * math.log(4 / 3))
    assert loss.nll.item() == pytest.approx(math.log(4 / 3))


def test_padding_changes_neither_loss_nor_gradient() -> None:
    hidden, weight, targets = example()
    longer = torch.cat([targets, torch.full((4, 3), PAD)], dim=1)
    noise = torch.cat([hidden.detach(), torch.full((3, 4, 6), 1e30)]).requires_grad_()
    short = token_loss(hidden, weight, targets, PAD, 0.1)
    long = token_loss(noise, weight, longer, PAD, 0.1)
    assert torch.equal(short.smoothed, long.smoothed)
    assert torch.equal(short.nll, long.nll)
    before, before_weight = gradients(short.smoothed, hidden, weight)
    after, after_weight = gradients(long.smoothed, noise, weight)
    assert torch.equal(before, after[:5])
    assert torch.equal(before_weight, after_weight)
    assert not after[5:].any()
    assert not before[targets.t() == PAD].any()


def test_nothing_but_padding_costs_nothing() -> None:
    hidden, weight, targets = example()
    loss = token_loss(hidden, weight, torch.full_like(targets, PAD), PAD, 0.1)
    assert loss.smoothed.item() == loss.nll.item() == 0.0
    assert not any(gradient.any() for gradient in gradients(loss.smoothed, hidden, weight))


@pytest.mark.parametrize("scale", [1e4, -1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_extreme_logits_stay_finite(scale: float, dtype: torch.dtype) -> None:
    hidden, weight, targets = example()
    hidden = (hidden.detach() * scale).to(dtype).requires_grad_()
    loss = token_loss(hidden, weight, targets, PAD, 0.1)
    assert math.isfinite(loss.smoothed.item())
    assert math.isfinite(loss.nll.item())
    assert all(g.isfinite().all() for g in gradients(loss.smoothed, hidden, weight))
    wanted = reference(hidden.float(), weight.to(dtype).float(), targets, 0.1)
    rate = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close((loss.smoothed, loss.nll), wanted, rtol=rate, atol=0.0)


@pytest.mark.parametrize(
    ("dtype", "rate"), [(torch.bfloat16, 3e-2), (torch.float16, 4e-3)], ids=str
)
def test_autocast_rounds_the_products_only(dtype: torch.dtype, rate: float) -> None:
    """Sums are fp32, the weight's gradient too; both are near those of full precision."""
    hidden, weight, targets = example(T=20, B=8, d=32, V=50)
    with torch.autocast("cpu", dtype):
        found = token_loss(hidden, weight, targets, PAD, 0.1)
    assert found.smoothed.dtype == found.nll.dtype == torch.float32
    found_gradients = gradients(found.smoothed, hidden, weight)
    assert {gradient.dtype for gradient in found_gradients} == {torch.float32}
    wanted = reference(hidden, weight, targets, 0.1)
    torch.testing.assert_close((found.smoothed, found.nll), wanted, rtol=rate, atol=0.0)
    for one, other in zip(found_gradients, gradients(wanted[0], hidden, weight), strict=True):
        assert float((one - other).norm() / other.norm()) < rate
    assert found.smoothed.item() != wanted[0].item(), "autocast did not happen"


def test_a_tied_weight_gets_the_sum_of_both_gradients() -> None:
    """The output matrix is the embedding too: one more path into the same leaf."""
    _, weight, targets = example(V=11, d=6)

    def loss(through: Any) -> Tensor:
        hidden = functional.embedding(targets.t(), weight).tanh()
        return through(hidden, weight, targets, 0.1)

    (found,) = gradients(loss(lambda *a: token_loss(*a[:3], PAD, a[3]).smoothed), weight)
    (wanted,) = gradients(loss(lambda *a: reference(*a)[0]), weight)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_validation_computes_no_gradient(monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    """Two of three products are for the gradient; without one there is exactly one a chunk."""
    products: list[tuple[int, ...]] = []
    mm = torch.mm

    def counted(*inputs: Tensor, **rest: Any) -> Tensor:
        products.append(tuple(inputs[0].shape))
        return mm(*inputs, **rest)

    monkeypatch.setattr(torch, "mm", counted)
    hidden, weight, targets = example()
    with_gradient = token_loss(hidden, weight, targets, PAD, 0.1)
    assert len(products) > 1
    products.clear()
    with mode():
        without = token_loss(hidden, weight, targets, PAD, 0.1)
    assert len(products) == 1
    assert not without.smoothed.requires_grad
    assert without.smoothed.item() == with_gradient.smoothed.item()


def test_only_the_smoothed_loss_is_minimised() -> None:
    hidden, weight, targets = example()
    loss = token_loss(hidden, weight, targets, PAD, 0.1)
    assert loss.smoothed.requires_grad
    assert not loss.nll.requires_grad
