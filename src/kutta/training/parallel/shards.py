"""Sharded tensors: gathering, distributing, and saving them as files of shards.

torch.distributed.checkpoint plans which rank writes and reads which shard, for any number of
ranks. Its safetensors format is used, because its default one is a pickle.
"""

import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import (
    load,  # pyright: ignore[reportUnknownVariableType]
)
from torch.distributed.checkpoint.state_dict_saver import (
    save,  # pyright: ignore[reportUnknownVariableType]
)
from torch.distributed.tensor import DTensor, distribute_tensor

from kutta.errors import InputError
from kutta.model.weights import own_tensors
from kutta.training.parallel.group import LostRank, ProcessGroup


def whole_tensors(model: nn.Module, keep: bool) -> dict[str, Tensor]:
    """The parameters of a model on the CPU, gathered one by one if they are sharded.

    All ranks take part; the result is empty on those that do not `keep` it.
    """
    whole: dict[str, Tensor] = {}
    for name, tensor in own_tensors(model).items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if keep:
            whole[name] = full.detach().cpu()
    return whole


def cut_like(tensor: Tensor, other: Tensor) -> Tensor:
    """This rank's shard of a whole tensor, sharded like the other one."""
    if not isinstance(other, DTensor):
        return tensor
    tensor = tensor.to(other.device)
    return distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)


def write_shards(tensors: Mapping[str, Tensor], folder: Path, group: ProcessGroup) -> None:
    """Write the shards of each rank to its own file; replicated tensors are written once."""
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    with _one_answer(group):
        save(_with_a_dimension(tensors), storage_writer=writer, process_group=group.gloo)


def read_shards(
    folder: Path, layout: Mapping[str, Tensor], group: ProcessGroup
) -> dict[str, Tensor]:
    """The tensors of a folder, each sharded like that of its name in `layout`."""
    like: dict[str, Tensor] = {}
    with _one_answer(group):
        metadata = HuggingFaceStorageReader(str(folder)).read_metadata()
        for name, entry in metadata.state_dict_metadata.items():
            assert isinstance(entry, TensorStorageMetadata), "safetensors hold tensors only"
            if sum(chunk.sizes.numel() for chunk in entry.chunks) != entry.size.numel():
                raise InputError(f"{folder} lacks a shard of {name}")
            if name not in layout or (layout[name].shape or (1,)) != entry.size:
                raise InputError(f"{name} in {folder} does not match this model")
            like[name] = torch.empty_like(layout[name])
        with warnings.catch_warnings(action="ignore"):  # it warns if there is one process
            load(
                cast(dict[str, Any], _with_a_dimension(like)),
                storage_reader=HuggingFaceStorageReader(str(folder)),
                process_group=group.gloo,
                no_dist=group.world_size == 1,
            )
    return like


def _with_a_dimension(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Scalars as vectors, because the reader takes slices. They share memory."""
    return {name: t if t.dim() else t.view(1) for name, t in tensors.items()}


@contextmanager
def _one_answer(group: ProcessGroup) -> Generator[None]:
    """Raise an error of any rank on rank 0; the others raise LostRank."""
    try:
        yield
    except CheckpointException as error:  # not an Exception, so nothing else would catch it
        if not group.is_main:
            raise LostRank from error
        cause, _ = next(iter(error.failures.values()))
        if isinstance(cause, OSError):
            raise cause from error
        raise InputError(str(cause)) from error
    except SafetensorError as error:
        raise InputError(f"a file of shards is damaged or truncated: {error}") from error
