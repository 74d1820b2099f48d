"""Dense connections between layers, as the authors' release has them around every layer."""

import torch
from torch import Tensor, nn

from kutta.model.norm import make_norm
from kutta.model.shape import StackShape
from kutta.ode.solver import History


class Dense(nn.Module):
    """What enters a layer is a learned mix of all that came before it (DLCL, Wang et al. 2019).

    x_0 = y and x_l = LN_l(what layer l gave); the layers are numbered from 1, and layer t + 1, or
    the final LayerNorm, is given sum_{l<=t} W_{t,l} x_l. The row W_t starts at the mean.
    """

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.norms = nn.ModuleList(make_norm(shape) for _ in range(shape.layers))
        self.rows = nn.ParameterList(
            nn.Parameter(torch.full((t + 1,), 1 / (t + 1))) for t in range(shape.layers + 1)
        )

    def forward(self, y: Tensor, history: History) -> tuple[Tensor, History]:
        """y (T, B, d) and (x_0, ..., x_{t-1}) -> what comes next, and (x_0, ..., x_t)."""
        t = len(history)
        history = (*history, self.norms[t - 1](y) if t else y)
        weights = self.rows[t].unbind()
        mixed = weights[0] * history[0]
        for weight, x in zip(weights[1:], history[1:], strict=True):
            mixed = torch.addcmul(mixed, weight, x)
        return mixed, history
