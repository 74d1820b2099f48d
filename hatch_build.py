"""Compile src/kutta/native/*.c into one library when the package is built or installed in place.

Where that is not possible, the package has no library, and onnxruntime computes instead.
"""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, final

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("src/kutta/native")
LIBRARY = NATIVE / "libkutta.so"
PLATFORM = "linux-x86_64"
# Not every CPU has these instructions: Python checks the CPU before it loads the library.
FLAGS = (
    *("-std=gnu11", "-O3", "-march=x86-64-v4", "-mavx512vnni", "-fPIC", "-shared"),
    *("-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"),
)


@final
class LibraryHook(BuildHookInterface[BuilderConfig]):
    """Adds the library to the wheel, which is then for one platform, but for every CPython."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        platform = sysconfig.get_platform()
        try:
            if platform != PLATFORM:
                raise OSError(f"it is for {PLATFORM}, and this is {platform}")
            warnings = compile_library(Path(self.root))
        except OSError as error:
            self.app.display_warning(
                f"{LIBRARY.name} is not built ({error}); onnxruntime computes instead."
            )
            return
        if warnings:
            self.app.display_warning(warnings)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform.replace('-', '_').replace('.', '_')}"
        build_data["artifacts"].append(f"/{LIBRARY}")


def compile_library(root: Path) -> str:
    """Compile the library, unless it is newer than what it is made of; return the warnings."""
    library = root / LIBRARY
    sources = sorted(path.relative_to(root) for path in (root / NATIVE).glob("*.c"))
    made_of = (root / "hatch_build.py", *(root / NATIVE).glob("*.[ch]"))
    if library.exists() and modified(library) > max(map(modified, made_of)):
        return ""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    new = LIBRARY.with_name(f".libkutta-{os.getpid()}.so")
    try:
        done = subprocess.run(
            [*compiler, *FLAGS, *sources, "-o", new, "-lm"],
            cwd=root,  # so that messages and the library name no folder of this machine
            env=os.environ | {"LC_ALL": "C"},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
        if done.returncode:
            lines = done.stderr.splitlines()
            raise OSError(next((line for line in lines if "error" in line), "the compiler failed"))
        os.replace(root / new, library)
    except OSError:
        library.unlink(missing_ok=True)  # an older one may not fit the Python code
        raise
    finally:
        (root / new).unlink(missing_ok=True)
    return done.stderr.strip()


def modified(path: Path) -> int:
    return path.stat().st_mtime_ns
