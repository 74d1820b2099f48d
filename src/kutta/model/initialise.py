"""Where the parameters start."""

import math
from contextlib import ExitStack
from typing import Any, cast

import torch
from torch import Tensor, nn

from kutta.model.attention import CrossAttention, SelfAttention
from kutta.model.decoding import OutputLayer
from kutta.model.field import Sublayer
from kutta.model.stack import Admin, Stack


def initialise(model: nn.Module) -> None:
    """Embeddings and output layer N(0, d^-1/2); projections Xavier-uniform with zero bias."""
    for module in model.modules():
        if isinstance(module, nn.Embedding | OutputLayer):
            nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    for module in model.modules():
        if isinstance(module, SelfAttention | CrossAttention):
            # Stored together for speed, but each of the projections is a matrix of its own.
            fused = module.qkv if isinstance(module, SelfAttention) else module.kv
            bound = math.sqrt(6.0 / (2 * fused.in_features))
            nn.init.uniform_(fused.weight, -bound, bound)
        if isinstance(module, SelfAttention) and module.relative is not None:
            nn.init.xavier_uniform_(module.relative)
    for module in model.modules():
        if isinstance(module, Stack) and module.shape.settings.init == "depth-scaled":
            _scale_by_depth(module)


@torch.no_grad()
def _scale_by_depth(stack: Stack) -> None:
    """DS-Init (Zhang et al. 2019): each projection of layer l, from 1, times 1/sqrt(l)."""
    if stack.shape.settings.share_layers:
        return  # all layers are the first
    for depth, layer in enumerate(stack.each_layer(), start=1):
        for module in layer.modules():
            if isinstance(module, nn.Linear):
                module.weight.mul_(depth**-0.5)


@torch.no_grad()
def profile_admin(model: nn.Module, source: Tensor, target_in: Tensor) -> None:
    """Set the omegas of ADMIN (Liu et al. 2020) from one batch, ids (B, S) and (B, T).

    The batch is run in training mode with omega = 1 and the variance of each sublayer's output
    f_i is taken; then omega_i = sqrt(1 + sum_{j<i} Var f_j) within the stack, the deviation that
    the sum would have reached without norms. The generators of random numbers are left as they
    were, and a model without ADMIN is not changed.
    """
    stacks = [
        m for m in model.modules() if isinstance(m, Stack) and m.shape.settings.init == "admin"
    ]
    if not stacks:
        return
    for residual in (r for stack in stacks for _, r in _residuals(stack)):
        nn.init.ones_(residual.omega)
    was_training = model.training
    model.train()
    with ExitStack() as hooks:
        variances = [_watch(stack, hooks) for stack in stacks]
        gpus = [source.device] if source.is_cuda else []
        hooks.enter_context(cast(Any, torch.random).fork_rng(devices=gpus))
        model(source, target_in)
    model.train(was_training)
    for stack, outputs in zip(stacks, variances, strict=True):
        total = 1.0
        for (h, residual), variance in zip(_residuals(stack), outputs, strict=True):
            nn.init.constant_(residual.omega, math.sqrt(total))
            total += h**2 * variance


def _residuals(stack: Stack) -> list[tuple[float, Admin]]:
    """The step sizes and residuals of a stack, in the order in which they are taken."""
    steps = [step for layer in stack.each_layer() for step in layer.steps()]
    return [(block.h, solver) for block, solver in steps if isinstance(solver, Admin)]


def _watch(stack: Stack, hooks: ExitStack) -> list[float]:
    """A list that will hold the variance of every sublayer's output, in order of evaluation."""
    variances: list[float] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        variances.append(output.float().var(correction=0).item())

    stack.training = False  # of the stack itself: every layer is to be seen, LayerDrop or not
    for module in stack.modules():
        if isinstance(module, Sublayer):
            hooks.enter_context(module.dropout.register_forward_hook(note))
    return variances
