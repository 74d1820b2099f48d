"""The residual of ADMIN (Liu et al. 2020), whose shortcut has a weight of its own."""

import torch
from torch import Tensor, nn

from kutta.ode import Solver
from kutta.ode.solver import Field, History


class Admin(Solver):
    """y' = omega y + F(y), omega (d,) learned; LayerNorm follows. 1 is the plain residual."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.omega = nn.Parameter(torch.ones(d_model))

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        return self.omega * y + F(y), history
