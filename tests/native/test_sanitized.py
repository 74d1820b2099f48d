"""The kernels under the address and the undefined-behaviour sanitizer: nothing is out of bounds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kutta.runtime.kernels import obstacle

ROOT = Path(__file__).parents[2]
SANITIZERS = "-fsanitize=address,undefined"
RUN = """
import sys, pytest
from pathlib import Path
from kutta.runtime import kernels
kernels.LIBRARY = Path(sys.argv[1])
assert not kernels.obstacle(), kernels.obstacle()
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def library_of(name: str) -> str:
    asked = [os.environ.get("CC") or "cc", f"-print-file-name={name}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(bool(obstacle()), reason=obstacle())
def test_nothing_is_out_of_bounds(tmp_path: Path) -> None:
    sources = sorted((ROOT / "src/kutta/native").glob("*.c"))
    flags = ["-std=gnu11", "-O1", "-g", "-march=x86-64-v4", "-mavx512vnni", "-fPIC", "-shared"]
    sanitized = ["-fvisibility=hidden", SANITIZERS, "-fno-sanitize-recover=undefined"]
    library = tmp_path / "libkutta.so"
    compiler = os.environ.get("CC") or "cc"
    made = subprocess.run([compiler, *flags, *sanitized, *sources, "-o", library, "-lm"])
    if made.returncode:
        pytest.skip("the compiler has no sanitizers")
    preload = f"{library_of('libasan.so')}:{library_of('libubsan.so')}"
    environment = os.environ | {"LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, "-c", RUN, library, "tests/native/test_kernels.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
