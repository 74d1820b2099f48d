"""Weights in 8 bits: a storage format, int8 codes with one fp32 scale per row.

    w[i, j] is stored as the code round(w[i, j] / s[i]) of -127 to 127, s[i] = max_j |w[i, j]| / 127

and read as code * s[i], so its error is at most s[i] / 2, up to the rounding of fp32. A row belongs
to an output of a linear layer, or to a token of an embedding. Only matrices of at least `SMALL`
numbers are stored so. All others (norms, biases, gamma, tables of positions) stay in fp32: they
hardly take space.

In the file the codes have the name of the matrix, and the scales that name with `SCALE` appended.
The metadata of the file name the format and its version (`FORMAT`).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from kutta.errors import InputError

KIND = "weights:"
FORMAT = f"{KIND}int8-rows-v1"
SCALE = ":scale"  # a colon, which is in no name of a parameter
SMALL = 4096

_LARGEST = 127  # -128 is not used, so that w and -w have opposite codes
_TINY = torch.finfo(torch.float32).tiny  # the smallest scale, also of rows of zeros


def quantised(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as they are stored: codes and scales of large matrices, fp32 of all others."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or name.endswith(SCALE):
            raise InputError(
                f"The tensor {name} ({tensor.dtype}) cannot be stored in 8 bits; give the weights "
                "of a model, in floating point."
            )
        if tensor.numel() >= SMALL and tensor.dim() > 2:
            raise InputError(
                f"The tensor {name} has {tensor.dim()} dimensions, but only matrices can be stored "
                "in 8 bits; keep this model in fp32."
            )
        values = tensor.detach().cpu().float()
        parts = (values,)
        if tensor.numel() >= SMALL and tensor.dim() == 2:
            parts = rows_in_8_bits(values)
            values = parts[0] * parts[1][:, None]
        if not values.isfinite().all():
            raise InputError(
                f"The tensor {name} has values that are infinite, not a number or too large, so it "
                "cannot be stored in 8 bits; use another checkpoint."
            )
        stored |= zip((name, name + SCALE), parts, strict=False)
    return stored


def rows_in_8_bits(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The codes and scales of an fp32 matrix (rows, columns): int8 of its shape, fp32 (rows)."""
    scales = (matrix.abs().amax(dim=1) / _LARGEST).clamp(min=_TINY)
    return (matrix / scales[:, None]).round().to(torch.int8), scales


def restored(stored: Mapping[str, Tensor], origin: str, where: str) -> dict[str, Tensor]:
    """The tensors of a file in fp32, from its tensors and the origin in its metadata."""
    kinds = [word for word in origin.split("|") if word.startswith(KIND)]
    if not kinds:
        return dict(stored)
    if kinds != [FORMAT]:
        raise InputError(
            f"{where} has the format {kinds[0].removeprefix(KIND)!r}, which Kutta cannot read; "
            "install a newer version."
        )
    codes = {name: tensor for name, tensor in stored.items() if tensor.dtype == torch.int8}
    scales = {name: tensor for name, tensor in stored.items() if name.endswith(SCALE)}
    rows = {name + SCALE: tensor.shape[:1] for name, tensor in codes.items()}
    if rows != {name: tensor.shape for name, tensor in scales.items()}:
        raise InputError(f"{where} is damaged: its codes and scales differ; copy it again.")
    whole = {name: codes[name] * scales[name + SCALE][:, None] for name in codes}
    return {name: tensor for name, tensor in stored.items() if name not in scales} | whole
