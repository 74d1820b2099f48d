"""The machine's own rate: a large matrix product, in a process that waits between questions."""

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Self

SIZES = (1024, 2048)
REPEATS = 3


class Gemm:
    """A process that measures the product when it is asked."""

    def __init__(self, threads: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__))],
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def gflops(self) -> float:
        """Billions of operations a second in fp32, at the size this machine likes best."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("A measuring process ended early; its message is above.")
        return float(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()


def main() -> None:
    """Answer every line with the rate of C = A B: the median of warm repeats."""
    import torch

    matrices = {n: [torch.rand(n, n) for _ in range(3)] for n in SIZES}

    def rate(n: int) -> float:
        a, b, c = matrices[n]
        seconds: list[float] = []
        for _ in range(REPEATS + 1):
            started = time.perf_counter()
            torch.mm(a, b, out=c)
            seconds.append(time.perf_counter() - started)
        return 2 * n**3 / median(seconds[1:])

    for _ in sys.stdin:
        print(max(map(rate, SIZES)) / 1e9, flush=True)


if __name__ == "__main__":
    main()
