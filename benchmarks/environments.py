"""A virtual environment for each peer, made from the package registry that pip is set up with."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

TORCH = "torch==2.13.0"  # one for all that are built on it
DEFAULT = Path.home() / ".cache" / "kutta-bench"
INSTALLED = "installed.json"  # written last, so a half-made environment is made again


class Absent(Exception):
    """Why a toolkit, or one way of running it, was not measured; one line."""


Steps = tuple[tuple[str, ...], ...]  # packages that are installed together, one set after another


def python_of(name: str, steps: Steps, folder: Path, install: bool) -> Path:
    """The Python of a toolkit's environment, which is made first where it is not there."""
    environment = folder / name.lower()
    python = environment / "bin" / "python"
    if is_installed(steps, environment):
        return python
    if not install:
        raise Absent(f"not installed in {environment}")
    shutil.rmtree(environment, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(environment)])
    for packages in steps:
        run([str(python), "-m", "pip", "install", "--quiet", *packages, *_keeping(steps)])
    (environment / INSTALLED).write_text(json.dumps(steps), encoding="utf-8")
    return python


def is_installed(steps: Steps, environment: Path) -> bool:
    """Whether the environment was made to the end, and from these very packages."""
    made = environment / INSTALLED
    return made.is_file() and made.read_text("utf-8") == json.dumps(steps)


def _keeping(steps: Steps) -> list[str]:
    """Name torch again: pip must not exchange a CPU build for a newer one of some gigabytes."""
    return [TORCH] if any(TORCH in packages for packages in steps) else []


def source_of(revision: str, folder: Path) -> Path:
    """Unpack src of a revision of this repository; return its folder."""
    root, archive = Path(__file__).parents[1], folder / "src.tar"
    folder.mkdir(parents=True, exist_ok=True)
    parts = ["src", "configs", "experiments/presets"]
    run(["git", "-C", str(root), "archive", f"--output={archive}", revision, *parts])
    shutil.unpack_archive(archive, folder, filter="data")
    return folder / "src"


def run(command: list[str], **environment: str) -> None:
    """Run to the end; what a failed command said last is the reason that a toolkit is absent."""
    try:
        env = clean(**environment)
        subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    except subprocess.CalledProcessError as error:
        raise Absent(last_line(error.stderr or error.stdout)) from error


def clean(**more: str) -> dict[str, str]:
    """The variables for a process outside our own environment, all of them on the CPU."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return kept | {"CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"} | more


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it ended without a word"
