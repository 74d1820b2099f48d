"""The norm of sublayers and stacks, made in one place."""

from torch import nn

from kutta.model.shape import StackShape

NORM_EPS = 1e-5


def make_norm(shape: StackShape) -> nn.Module:
    """LayerNorm over the last dimension of states (T, B, d)."""
    return nn.LayerNorm(shape.d_model, eps=NORM_EPS)
