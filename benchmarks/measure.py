"""One measurement in a process of its own, so that its peak memory is its own.

`train.py` starts this file with a job, writes a line for every figure it wants and reads one line
of JSON back. In between the process waits, so several of them take turns on a noisy machine.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()  # before torch and kutta are loaded: that is part of starting up
Row = dict[str, float]
Clock = Callable[[], float]

PRESETS: dict[str, dict[str, int]] = {
    "base": {"d_model": 512, "ffn": 2048, "heads": 8, "encoder_layers": 6, "decoder_layers": 6},
    "tiny": {"d_model": 128, "ffn": 256, "heads": 4, "encoder_layers": 4, "decoder_layers": 4},
}
GEMM_SIZES = (1024, 2048)
REPEATS = 3


def gemm(clock: Clock) -> Iterator[Row]:
    """The rate of C = A B in fp32: median of warm repeats, at the size this machine likes best."""
    import torch

    matrices = {n: [torch.rand(n, n) for _ in range(3)] for n in GEMM_SIZES}

    def rate(n: int) -> float:
        a, b, c = matrices[n]
        seconds = []
        for _ in range(REPEATS + 1):
            started = clock()
            torch.mm(a, b, out=c)
            seconds.append(clock() - started)
        return 2 * n**3 / statistics.median(seconds[1:])

    while True:
        yield {"gflops": max(map(rate, GEMM_SIZES)) / 1e9}


def updates(
    clock: Clock, store: str, preset: str, solver: str, vocabulary: int, batch_tokens: int
) -> Iterator[Row]:
    """Real updates of training, one at a time, with the arithmetic of each."""
    import torch

    from kutta.config import ModelConfig, TrainConfig
    from kutta.data.batches import BatchStream
    from kutta.data.store import Store
    from kutta.data.tokenizer import PAD
    from kutta.model.arithmetic import cost_of
    from kutta.model.build import build_model
    from kutta.training.loop import fit, make_trainer

    torch.manual_seed(1)
    model = build_model(
        ModelConfig(**PRESETS[preset], solver=solver), vocabulary, vocabulary, shared=True
    )
    cost = cost_of(model)
    config = TrainConfig(batch_tokens=batch_tokens, device="cpu")
    stream = BatchStream(Store.open(Path(store)), batch_tokens, seed=1)
    trainer = make_trainer(model, config, torch.device("cpu"))
    steps = fit(trainer, stream, config)
    for number in count():
        started = clock()
        step = next(steps)
        seconds = clock() - started
        source = int((stream.take(number).source != PAD).sum())
        # Two operations forward and four backward for each parameter and token.
        arithmetic = 6 * (cost.per_source_token * source + cost.per_target_token * step.tokens)
        yield {"seconds": seconds, "tokens": step.tokens, "gflop": arithmetic / 1e9}


def startup(clock: Clock, store: str, batch_tokens: int) -> Iterator[Row]:
    """From nothing to the first batch of a prepared store, loading of libraries included."""
    from kutta.data.batches import BatchStream
    from kutta.data.store import Store

    stream = BatchStream(Store.open(Path(store)), batch_tokens, seed=1)
    stream.take(0)
    yield {"seconds": clock(), "batches": stream.batches_per_epoch}


def peak_mb() -> float:
    """The most memory this process has held, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # not getrusage: on Linux that remembers the parent before exec
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # bytes on macOS


def clock_of(name: str) -> Clock:
    """Seconds since the start by the wall clock, or of processor time of the main thread.

    The main thread does its share of every parallel piece and all that is not parallel, so its
    processor time is what an idle machine would need, as long as it sleeps while it waits.
    """
    if name == "wall":
        return lambda: time.perf_counter() - STARTED
    os.environ["OMP_WAIT_POLICY"] = "passive"  # read by torch when it is loaded
    return time.thread_time


def main() -> None:
    job: dict[str, Any] = json.loads(sys.argv[1])
    os.environ["OMP_NUM_THREADS"] = str(job.pop("threads"))
    clock = clock_of(job.pop("clock"))
    rows = {"gemm": gemm, "updates": updates, "startup": startup}[job.pop("measure")]
    answers = rows(clock, **job)
    for _ in sys.stdin:
        print(json.dumps({**next(answers), "peak_mb": peak_mb()}), flush=True)


if __name__ == "__main__":
    main()
