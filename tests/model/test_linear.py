"""The product of linear layers: where oneDNN computes it, and that it is the same everywhere."""

import pytest
import torch
from torch.nn import functional

from kutta.model import linear as module
from kutta.model.linear import LARGE, Linear, linear

needs_onednn = pytest.mark.skipif(not module.ONEDNN, reason="torch lacks oneDNN for AVX-512 here")


@pytest.fixture
def by_onednn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The multiply-adds of the products that oneDNN computes."""
    found: list[int] = []
    known = module._in_onednn

    def noted(x: torch.Tensor) -> bool:
        answer = known(x)
        if answer:
            found.append(x.numel())
        return answer

    monkeypatch.setattr(module, "_in_onednn", noted)
    return found


def large() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(3, 43, 128), torch.randn(257, 128), torch.randn(257)


@needs_onednn
@torch.no_grad()
@pytest.mark.parametrize("transposed", [False, True])
def test_large_products_are_those_of_torch(by_onednn: list[int], transposed: bool) -> None:
    x, weight, bias = large()
    x = x.transpose(0, 1) if transposed else x
    assert x.numel() * len(weight) >= LARGE
    exact = functional.linear(x.double(), weight.double())
    torch.testing.assert_close(linear(x, weight).double(), exact, rtol=1e-5, atol=1e-4)
    found = linear(x, weight, bias).double()
    torch.testing.assert_close(found, exact + bias, rtol=1e-5, atol=1e-4)
    assert len(by_onednn) == 2


@needs_onednn
def test_gradients_autocast_other_types_and_small_products_are_left_to_torch(
    by_onednn: list[int],
) -> None:
    x, weight, bias = large()
    layer = Linear(128, 257)
    linear(x, weight.requires_grad_(), bias).sum().backward()
    assert weight.grad is not None
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
        layer.double()(x.double())
        layer.float()(x[:1, :1])
    assert by_onednn == []
    with torch.inference_mode():
        layer(x)
    assert by_onednn == [x.numel()]


@torch.no_grad()
def test_without_onednn_the_product_is_that_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = large()
    monkeypatch.setattr(module, "ONEDNN", False)
    assert torch.equal(linear(x, weight, bias), functional.linear(x, weight, bias))
