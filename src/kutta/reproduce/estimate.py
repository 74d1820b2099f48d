"""The estimated cost of a reproduction: arithmetic, and time derived from it.

Counted are the matrix products of `cost_of`, forward and backward (2 FLOP a multiply-add, and the
backward pass costs twice the forward pass), at full batches. Attention's own products, validation
and the search for translations are left out.
"""

import time
from dataclasses import dataclass
from functools import cache

import torch

from kutta.config import Config, ModelConfig
from kutta.data.prepare import expected_vocabulary
from kutta.model.arithmetic import Cost, cost_of
from kutta.model.transformer import build_model
from kutta.runs.device import mixed_precision

GPU_RATE = 40e12  # FLOP/s assumed of a V100- or A100-class GPU in mixed precision, sustained
CPU_SHARE = 0.5  # rate of training a small model relative to a large matrix product
BF16_GAIN = 2  # rate of bf16 over that of fp32, on a CPU that has instructions for it
_BACKWARD_TOO, _FLOP = 3, 2


@dataclass(frozen=True)
class Estimate:
    """The cost of one run: tokens are positions of full batches, on either side."""

    parameters: int
    steps: int
    tokens: int
    flop: float
    disk: int
    cpu_gain: int  # rate of its precision over that of fp32 on this machine's CPU

    def gpu_seconds(self) -> float:
        """The time on the assumed GPU."""
        return self.flop / GPU_RATE

    def cpu_seconds(self, rate: float) -> float:
        """The time on a core of this machine with this many FLOP/s in fp32."""
        return self.flop / (rate * self.cpu_gain)


def estimate(config: Config) -> Estimate:
    """The cost of training a config."""
    settings = config.train
    size = expected_vocabulary(config.data)
    cost = _cost(config.model.model_dump_json(), size, config.data.shared_vocab)
    tokens = settings.max_steps * settings.accumulate * settings.batch_tokens
    per_token = cost.per_source_token + cost.per_target_token
    copies = min(settings.keep_last, settings.max_steps // settings.save_every) + 1
    return Estimate(
        parameters=cost.parameters,
        steps=settings.max_steps,
        tokens=tokens,
        flop=float(_FLOP * _BACKWARD_TOO * per_token * tokens),
        disk=4 * cost.parameters * (copies + 4),  # two checkpoints keep both moments of Adam
        cpu_gain=_cpu_gain(settings.precision),
    )


def _cpu_gain(precision: str) -> int:
    """The gain of a precision on a CPU; fp16 counts as fp32, which a warning recommends there."""
    if precision == "mixed":
        precision = mixed_precision(torch.device("cpu"))
    return BF16_GAIN if precision == "bf16" else 1


@cache
def _cost(model: str, vocabulary: int, shared: bool) -> Cost:
    """The cost of a model of these settings (JSON), built without memory for its weights."""
    with torch.device("meta"):
        built = build_model(ModelConfig.model_validate_json(model), vocabulary, vocabulary, shared)
    return cost_of(built)


def machine_rate(seconds: float = 0.5, size: int = 512) -> float:
    """FLOP/s of an fp32 matrix product on one core of this machine, measured briefly."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a, b = torch.rand(size, size), torch.rand(size, size)
        torch.mm(a, b)
        best, end = 0.0, time.perf_counter() + seconds
        while (started := time.perf_counter()) < end:
            torch.mm(a, b)
            best = max(best, 2 * size**3 / (time.perf_counter() - started))
        return best
    finally:
        torch.set_num_threads(threads)
