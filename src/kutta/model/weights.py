"""A model's parameters in a safetensors file: tensors and names only, nothing that can run."""

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor, nn

from kutta import __version__
from kutta.config import ModelConfig
from kutta.errors import InputError, Unreadable
from kutta.integrity import check, recorded
from kutta.limits import available_memory
from kutta.model.int8 import FORMAT, SCALE, quantised, restored
from kutta.model.transformer import build_model

Shape = tuple[int, ...]
_LONGEST_MARK = 200  # characters; it is printed, as part of a signature


def fill(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy `tensors` into `model`: all that it has and no others, or nothing is changed."""
    wanted = own_tensors(model)
    given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    _compare({name: tuple(tensor.shape) for name, tensor in wanted.items()}, given, where)
    for name, tensor in wanted.items():
        if tensor.dtype != tensors[name].dtype:
            raise InputError(
                f"{where}: the tensor {name} has numbers of the type {tensors[name].dtype}, not "
                f"{tensor.dtype}; give the weights as Kutta saved them."
            )
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(tensors[name])


def _compare(wanted: Mapping[str, Shape], given: Mapping[str, Shape], where: str) -> None:
    """Reject tensors that are not those of the model: other names, or other shapes."""
    for names, what in (
        (wanted.keys() - given.keys(), "lacks the tensor"),
        (given.keys() - wanted.keys(), "has the unknown tensor"),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise InputError(
                f"{where} {what} {min(names)}{more}, so it holds another model; "
                "give it with the config.json it was trained with."
            )
    for name, shape in wanted.items():
        if shape != given[name]:
            raise InputError(
                f"{where}: the tensor {name} is {_sizes(given[name])} but the config asks "
                f"for {_sizes(shape)}; give the config.json it was trained with."
            )


def check_shapes(
    config: ModelConfig,
    source_vocabulary: int,
    target_vocabulary: int,
    shared: bool,
    shapes: Mapping[str, tuple[int, ...]],
    where: str,
) -> None:
    """Compare what a config asks for with the header of a file, before anything is allocated.

    So a model takes no more memory and time than its file. The sizes of the tensors come from a
    model without memory (torch's device "meta").
    """
    layers = 0 if config.share_layers else config.encoder_layers + config.decoder_layers
    if layers > len(shapes):
        raise InputError(
            f"{where} has {len(shapes):,} tensors, too few for the {layers:,} layers that the "
            "config asks for; give the config.json it was trained with."
        )
    with torch.device("meta"):
        model = build_model(config, source_vocabulary, target_vocabulary, shared)
    _compare({name: tuple(t.shape) for name, t in own_tensors(model).items()}, shapes, where)
    needed, free = 4 * sum(map(math.prod, shapes.values())), available_memory()
    if free and needed > free:
        raise InputError(
            f"{where} needs {needed / 1e9:,.1f} GB of memory but {free / 1e9:,.1f} GB are "
            "available; use a machine with more, or a smaller model."
        )


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of `model` by name, a shared one under its first name only."""
    unique: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        unique.setdefault(id(tensor), (name, tensor))
    return dict(unique.values())


def write_tensors(tensors: Mapping[str, Tensor], path: Path, origin: str = "") -> None:
    """Write named tensors to `path`, atomically; `origin` is a word on where they come from.

    If its folder has a manifest, the file is recorded there.
    """
    # One entry of metadata only: safetensors writes several in a random order, and equal weights
    # should be equal files.
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with recorded(path) as temporary:
        temporary.write_bytes(save(ready, metadata={"kutta": f"{__version__} {origin}".strip()}))


def write_int8(tensors: Mapping[str, Tensor], path: Path, origin: str = "") -> None:
    """Write named tensors to `path` in 8 bits, atomically; the origin names the format too."""
    write_tensors(quantised(tensors), path, "|".join(filter(None, (origin, FORMAT))))


def read_tensors(path: Path, verified: bool = False) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU; those stored in 8 bits are fp32 again.

    The file is checked for damage, unless it was `verified` already.
    """
    if not verified:
        check(path)
    with _reading(path):
        stored = load_file(path)
    tensors = restored(stored, read_origin(path), str(path))
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(
                f"{path}: the tensor {name} has values that are infinite or not a number; copy it "
                "again, or use another checkpoint."
            )
    return tensors


def read_origin(path: Path) -> str:
    """Where the tensors of a file come from, such as "average:5"; empty where it does not say."""
    return _mark(path).partition(" ")[2]


def is_ours(path: Path) -> bool:
    """Whether a file has weights that Kutta wrote."""
    try:
        return path.is_file() and bool(_mark(path))
    except InputError:
        return False


def _mark(path: Path) -> str:
    """What Kutta writes into the metadata of a file: its version and the origin."""
    with _reading(path), cast(Any, safe_open)(path, framework="pt") as file:
        metadata: dict[str, str] = file.metadata() or {}
    mark = metadata.get("kutta", "")
    return mark if mark.isprintable() and len(mark) <= _LONGEST_MARK else ""


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes in a safetensors file, from its header only."""
    with _reading(path), cast(Any, safe_open)(path, framework="pt") as file:
        names: list[str] = file.keys()
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
    return {name: shape for name, shape in shapes.items() if not name.endswith(SCALE)}


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"


@contextmanager
def _reading(path: Path) -> Generator[None]:
    """Tell in one sentence why a file cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"There is no {path}; give a folder with trained weights.") from error
    except OSError as error:
        reason = error.strerror or error
        raise Unreadable(f"Cannot read {path}: {reason}; check its permissions.") from error
    except SafetensorError as error:
        raise InputError(
            f"{path} is damaged, perhaps cut off ({error}); copy it again, or use another "
            "checkpoint."
        ) from error
