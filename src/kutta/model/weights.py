"""A model's parameters in a safetensors file: tensors and names only, nothing that can run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor, nn

from kutta import __version__
from kutta.errors import InputError
from kutta.files import atomic_path


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the parameters of `model` to `path`, atomically; a shared tensor is written once."""
    write_tensors(own_tensors(model), path)


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill the parameters of `model` from `path`: every tensor must be there and fit, no other."""
    fill(model, read_tensors(path), str(path))


def fill(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy `tensors` into `model`; nothing is changed when one of them does not fit."""
    wanted = own_tensors(model)
    for names, what in (
        (wanted.keys() - tensors.keys(), "lacks the tensor"),
        (tensors.keys() - wanted.keys(), "has the unknown tensor"),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise InputError(
                f"{where} {what} {min(names)}{more}, so it holds another model; "
                "give it with the config.json it was trained with."
            )
    for name, tensor in wanted.items():
        if tensor.shape != tensors[name].shape:
            raise InputError(
                f"{where}: the tensor {name} is {_sizes(tensors[name].shape)} but the config asks "
                f"for {_sizes(tensor.shape)}; give the config.json it was trained with."
            )
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(tensors[name])


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of `model` by name, a shared one under its first name only."""
    unique: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        unique.setdefault(id(tensor), (name, tensor))
    return dict(unique.values())


def write_tensors(tensors: Mapping[str, Tensor], path: Path, origin: str = "") -> None:
    """Write named tensors to `path`, atomically; `origin` is a word on where they come from."""
    # One entry of metadata only: safetensors writes several in a random order, and equal weights
    # should be equal files.
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        temporary.write_bytes(save(ready, metadata={"kutta": f"{__version__} {origin}".strip()}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error


def read_origin(path: Path) -> str:
    """Where the tensors of a file come from, such as "average:5"; empty where it does not say."""
    try:
        with cast(Any, safe_open)(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error
    return metadata.get("kutta", "").partition(" ")[2]


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes in a safetensors file, from its header alone."""
    try:
        with cast(Any, safe_open)(path, framework="pt") as file:
            names: list[str] = file.keys()
            return {name: tuple(file.get_slice(name).get_shape()) for name in names}
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"


def _unreadable(path: Path, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"There is no {path}; give a folder with trained weights.")
    if isinstance(error, OSError):
        return InputError(f"Cannot read {path}: {error.strerror or error}; check its permissions.")
    return InputError(
        f"{path} is damaged, perhaps cut off ({error}); copy it again, or use another checkpoint."
    )
