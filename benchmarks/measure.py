"""One measurement in a process of its own, so that its start and its peak memory are its own.

The scripts start this file with a job, write a line for every figure they want and read one line
of JSON back (`worker.py`). In between the process waits.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainee import peak_mb

STARTED = time.perf_counter()  # before torch and kutta are loaded: that is part of starting up
Row = dict[str, float]

GEMM_SIZES = (1024, 2048)
REPEATS = 3


def gemm() -> Iterator[Row]:
    """The rate of C = A B in fp32: median of warm repeats, at the size this machine likes best."""
    import torch

    matrices = {n: [torch.rand(n, n) for _ in range(3)] for n in GEMM_SIZES}

    def rate(n: int) -> float:
        a, b, c = matrices[n]
        seconds = []
        for _ in range(REPEATS + 1):
            started = time.perf_counter()
            torch.mm(a, b, out=c)
            seconds.append(time.perf_counter() - started)
        return 2 * n**3 / statistics.median(seconds[1:])

    while True:
        yield {"gflops": max(map(rate, GEMM_SIZES)) / 1e9}


def startup(store: str, batch_tokens: int) -> Iterator[Row]:
    """From nothing to the first batch of a prepared store, loading of libraries included."""
    from kutta.data.batches import BatchStream
    from kutta.data.store import Store

    stream = BatchStream(Store.open(Path(store)), batch_tokens, seed=1)
    stream.take(0)
    yield {"seconds": time.perf_counter() - STARTED, "batches": stream.batches_per_epoch}


def main() -> None:
    job: dict[str, Any] = json.loads(sys.argv[1])
    os.environ["OMP_NUM_THREADS"] = str(job.pop("threads"))
    rows = {"gemm": gemm, "startup": startup}[job.pop("measure")]
    answers = rows(**job)
    for _ in sys.stdin:
        print(json.dumps({**next(answers), "peak_mb": peak_mb()}), flush=True)


if __name__ == "__main__":
    main()
