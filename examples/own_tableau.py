"""A Runge-Kutta method of your own: check it, measure its order, and put it into a model.

python examples/own_tableau.py

The family of two-stage methods of order two has one free number: where the second stage looks.
alpha = 1/2 is the midpoint method, 2/3 Ralston's, 1 Heun's (the paper's RK2).
"""

from fractions import Fraction

import torch

from kutta import InputError
from kutta.config import ModelConfig
from kutta.model.transformer import build_model
from kutta.ode import ButcherTableau, RungeKutta


def two_stages(alpha: Fraction) -> ButcherTableau:
    """b_2 = 1 / (2 alpha) makes it of order two."""
    last = 1 / (2 * alpha)
    return ButcherTableau.own(a=[[alpha]], b=[1 - last, last])


def error(tableau: ButcherTableau, steps: int) -> float:
    """The error at time 1 on y' = -y², y(0) = 1, whose solution is 1 / (1 + t)."""
    y, solver = torch.ones(1, dtype=torch.float64), RungeKutta(tableau)
    for _ in range(steps):
        y, _ = solver.step(lambda v: -v * v / steps, y)
    return abs(float(y) - 0.5)


def main() -> None:
    for alpha in (Fraction(1, 2), Fraction(2, 3), Fraction(1), Fraction(5, 4)):
        tableau = two_stages(alpha)
        ratio = error(tableau, 20) / error(tableau, 40)
        print(f"alpha = {alpha}: {tableau.description}, halving the step divides it by {ratio:.2f}")

    try:  # rounded numbers are noticed, in exact fractions
        ButcherTableau.own(a=[[0.67]], b=[0.25, 0.74])
    except InputError as mistake:
        print(f"refused: {mistake}")

    tableau = two_stages(Fraction(5, 4))
    numbers = {"a": [[str(x) for x in row] for row in tableau.a], "b": [str(x) for x in tableau.b]}
    config = ModelConfig.model_validate(
        {
            "solver": "custom",
            "tableau": numbers,
            "d_model": 32,
            "ffn": 64,
            "heads": 4,
            "encoder_layers": 2,
            "decoder_layers": 1,
        }
    )
    model = build_model(config, 100, 100, shared=True)
    source = torch.randint(4, 100, (2, 7))
    print("states of a model with this method:", tuple(model(source, source).shape))


if __name__ == "__main__":
    main()
