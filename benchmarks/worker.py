"""Starting measure.py and asking it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MEASURE = Path(__file__).with_name("measure.py")


class Worker:
    """A process of measure.py that answers with one row for each `ask`."""

    def __init__(self, threads: int, measure: str, **job: Any) -> None:
        job |= {"measure": measure, "threads": threads}
        self._process = subprocess.Popen(
            [sys.executable, str(MEASURE), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("A measuring process ended early; its message is above.")
        return json.loads(answer)

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()


@contextmanager
def worker(threads: int, measure: str, **job: Any) -> Iterator[Worker]:
    process = Worker(threads, measure, **job)
    try:
        yield process
    finally:
        process.close()
