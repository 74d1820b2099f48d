"""Linear layers, whose products on a CPU are those of oneDNN where no gradient is needed.

torch computes fp32 products with MKL, which does not use AVX-512 on processors by AMD. oneDNN does:
it is twice as fast on Zen 5.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

LARGE = 1 << 22  # multiply-adds from which oneDNN gains more than it costs to call it


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (..., in) times weight (out, in), plus a bias (out,)."""
    if x.numel() * len(weight) >= LARGE and _in_onednn(x):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return functional.linear(x, weight, bias)


class Linear(nn.Linear):
    """A linear layer of torch with this product."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def _has_onednn() -> bool:
    """Whether this torch has the product, which is no public function, and the CPU gains by it."""
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return known and torch.backends.cpu.get_cpu_capability() == "AVX512"


ONEDNN = _has_onednn()


def _in_onednn(x: Tensor) -> bool:
    """Whether a product is one of plain fp32 numbers on a CPU, without gradients or autocast."""
    return (
        ONEDNN
        and type(x) is Tensor
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
    )
