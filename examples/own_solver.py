"""A solver of your own in a trained model's place: Adams-Bashforth, which looks back.

python examples/own_solver.py

y_{t+1} = y_t + 3/2 F(y_t) - 1/2 F(y_{t-1}) has order two and evaluates F once per block. History
goes in and out of `step`; the object keeps nothing.
"""

import torch
from torch import Tensor

from kutta.config import ModelConfig
from kutta.model.transformer import build_model
from kutta.ode import Solver
from kutta.ode.solver import Field, History


class AdamsBashforth(Solver):
    """The two-step method; the first block is Euler's. History: (F(y_{t-1}),)."""

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        now = F(y)
        if not history:
            return y + now, (now,)
        return y + 1.5 * now - 0.5 * history[0], (now,)


def order(steps: int = 40) -> float:
    """The observed order on y' = -y up to time 1."""

    def error(count: int) -> float:
        y, history = torch.ones(1, dtype=torch.float64), ()
        for _ in range(count):
            y, history = AdamsBashforth().step(lambda v: -v / count, y, history)
        return abs(float(y) - float(torch.tensor(-1.0, dtype=torch.float64).exp()))

    return float(torch.log2(torch.tensor(error(steps) / error(2 * steps))))


def main() -> None:
    print(f"observed order {order():.2f}")
    sizes = {"d_model": 32, "ffn": 64, "heads": 4, "encoder_layers": 3, "decoder_layers": 1}
    torch.manual_seed(1)
    model = build_model(ModelConfig.model_validate(sizes), 100, 100, shared=True).eval()
    source, target = torch.randint(4, 100, (2, 7)), torch.randint(4, 100, (2, 5))
    with torch.no_grad():
        before = model(source, target)
        for layer in model.encoder.each_layer():  # the same weights, another method
            layer.solvers[0] = AdamsBashforth()
        after = model(source, target)
    change = float((after - before).norm() / before.norm())
    print(f"with another solver in the encoder the states change by {change:.1%}")


if __name__ == "__main__":
    main()
