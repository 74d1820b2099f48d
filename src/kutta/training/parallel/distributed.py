"""Data-parallel training: DDP, or FSDP2 with sharded parameters and moments."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from kutta.model import TextModel
from kutta.model.stack import Stack
from kutta.training.parallel.group import ProcessGroup


def spread(model: TextModel, group: ProcessGroup, device: torch.device, shard: bool) -> nn.Module:
    """The model wrapped so that gradients are averaged over the process group."""
    if group.world_size == 1:
        return model
    if shard:
        return _shard(model, group, device)
    drops = any(stack.shape.settings.layer_drop > 0 for stack in _stacks(model))
    if drops:
        model.register_forward_hook(_reach_output)
    return DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,  # otherwise every gradient is stored twice
        find_unused_parameters=drops,
    )


def _reach_output(model: nn.Module, _: Any, hidden: Tensor) -> Tensor:
    """Make the output matrix a part of the graph in which DDP looks for unused parameters.

    The loss uses it outside the forward pass, so DDP would not wait for its gradient.
    """
    return hidden + cast(TextModel, model).output_weight[:0].sum()  # a zero


def is_sharded(module: nn.Module) -> bool:
    """Whether the parameters of a wrapped model are sharded."""
    return isinstance(module, FSDPModule)


def _shard(model: TextModel, group: ProcessGroup, device: torch.device) -> nn.Module:
    """Shard the parameters of each layer, and those of the rest of the model.

    The root's parameters, including the output matrix, stay gathered from the forward pass to the
    end of the backward pass, so the loss may use them outside of it.
    """
    mesh = init_device_mesh(device.type, (group.world_size,))
    whole = set(_single_numbers(model))
    for stack in _stacks(model):
        # A parameter belongs to one FSDP unit, so what layers share belongs to the root.
        if not (stack.shape.settings.share_layers or stack.shape.settings.share_gamma):
            for layer in stack.each_layer():
                fully_shard(layer, mesh=mesh, ignored_params=whole)
    fully_shard(model, mesh=mesh, ignored_params=whole)  # in place
    return model


def parameter_groups(model: nn.Module) -> list[dict[str, list[nn.Parameter]]]:
    """Parameter groups for the optimizer: fused Adam needs sharded and whole ones separately."""
    parameters = list(model.parameters())
    groups = ([p for p in parameters if isinstance(p, DTensor) == split] for split in (True, False))
    return [{"params": group} for group in groups if group]


def syncing(module: nn.Module, last: bool) -> AbstractContextManager[object]:
    """The context of a micro-batch: gradients are synchronised after the last one only."""
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
    elif isinstance(module, DistributedDataParallel) and not last:
        return cast(AbstractContextManager[object], module.no_sync())
    return nullcontext()


def finish_gradients(module: nn.Module) -> None:
    """After the last micro-batch: average the gradients that FSDP does not."""
    if not isinstance(module, FSDPModule):
        return
    gradients = [p.grad for p in _single_numbers(module) if p.grad is not None]
    if gradients:
        means = torch.stack(gradients)
        dist.all_reduce(means)
        means /= dist.get_world_size()
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean)


def norm_of(gradients: list[Tensor]) -> float:
    """The Euclidean norm of all gradients together, including shards on other ranks."""
    split = [gradient for gradient in gradients if isinstance(gradient, DTensor)]
    whole = [gradient for gradient in gradients if not isinstance(gradient, DTensor)]
    norms = [nn.utils.get_total_norm(group) for group in (split, whole) if group]
    return math.hypot(*(float(n.full_tensor() if isinstance(n, DTensor) else n) for n in norms))


def _stacks(model: nn.Module) -> Iterator[Stack]:
    return (child for child in model.children() if isinstance(child, Stack))


def _single_numbers(model: nn.Module) -> list[nn.Parameter]:
    """Parameters that cannot be sharded: scalar coefficients."""
    return [parameter for parameter in model.parameters() if parameter.dim() == 0]
