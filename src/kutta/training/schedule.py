"""The learning rate as a pure function of the step."""

from kutta.config import TrainConfig


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of update number `step` (from 1): linear warm-up, then inverse square root.

    warmup_from -> lr over `warmup` steps, afterwards lr * sqrt(warmup / step).
    """
    if step <= config.warmup:
        return config.warmup_from + (config.lr - config.warmup_from) * step / config.warmup
    return config.lr * (config.warmup / step) ** 0.5
