"""A virtual environment for each peer, made from the package registry that pip is set up with."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from peers.toolkit import TORCH, Toolkit

DEFAULT = Path.home() / ".cache" / "kutta-bench"
INSTALLED = "installed.json"  # written last, so a half-made environment is made again


class Absent(Exception):
    """Why a toolkit, or one way of running it, was not measured; one line."""


def python_of(toolkit: Toolkit, folder: Path, install: bool) -> Path:
    """The Python of a toolkit's environment, which is made first where it is not there."""
    environment = folder / toolkit.name.lower()
    python = environment / "bin" / "python"
    if is_installed(toolkit, environment):
        return python
    if not install:
        raise Absent(f"not installed in {environment}")
    shutil.rmtree(environment, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(environment)])
    for packages in toolkit.install:
        run([str(python), "-m", "pip", "install", "--quiet", *packages, *_keeping(toolkit)])
    (environment / INSTALLED).write_text(json.dumps(toolkit.install), encoding="utf-8")
    return python


def is_installed(toolkit: Toolkit, environment: Path) -> bool:
    """Whether the environment was made to the end, and from these very packages."""
    made = environment / INSTALLED
    return made.is_file() and made.read_text("utf-8") == json.dumps(toolkit.install)


def _keeping(toolkit: Toolkit) -> list[str]:
    """Name torch again: pip must not exchange a CPU build for a newer one of some gigabytes."""
    return [TORCH] if any(TORCH in packages for packages in toolkit.install) else []


def run(command: list[str]) -> None:
    """Run to the end; what a failed command said last is the reason that a toolkit is absent."""
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, env=clean())
    except subprocess.CalledProcessError as error:
        raise Absent(last_line(error.stderr or error.stdout)) from error


def clean(**more: str) -> dict[str, str]:
    """The variables for a process outside our own environment, all of them on the CPU."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return kept | {"CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"} | more


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it ended without a word"
