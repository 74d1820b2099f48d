"""The wheel has the compiled library where a compiler can make it, and is pure otherwise."""

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = Path("src/kutta/native")
LIBRARY = "kutta/native/libkutta.so"
NO_COMPILER = {"CC": "/nonexistent/cc"}
OTHER_PLATFORM = {"_PYTHON_HOST_PLATFORM": "macosx-14.0-arm64"}  # sysconfig believes it
NOT_BUILT = "libkutta.so is not built ("
SMALL = {
    "small.c": """#include "small.h"
__attribute__((visibility("default"))) int number(void) { return NUMBER; }
""",
    "small.h": "#define NUMBER 7\n",
}

pytestmark = pytest.mark.skipif(
    find_spec("hatchling") is None, reason="hatchling is not installed; it is in the extra dev"
)


def missing() -> str:
    """Why the library cannot be compiled on this machine, or nothing."""
    if sysconfig.get_platform() != "linux-x86_64":
        return "the library is for Linux on x86-64 only"
    compiler = os.environ.get("CC") or "cc"
    check = ["-march=x86-64-v4", "-fsyntax-only", "-include", "math.h", "-x", "c", os.devnull]
    try:
        done = subprocess.run([*shlex.split(compiler), *check], capture_output=True, check=False)
    except OSError:
        return f"there is no compiler {compiler}"
    return f"the compiler {compiler} is too old or not complete" if done.returncode else ""


compiled = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small package that is built like this one; its C sources are SMALL."""
    root = tmp_path / "checkout"
    (root / NATIVE).mkdir(parents=True)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, root)
    shutil.copy(ROOT / "src/kutta/__init__.py", root / "src/kutta")
    for name, text in SMALL.items():
        (root / NATIVE / name).write_text(text)
    return root


def build(root: Path, target: str = "wheel", **env: str) -> tuple[Path, str]:
    """The file that hatchling builds, and what it says."""
    out = root.parent / "built"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    done = subprocess.run(
        command, cwd=root, env=os.environ | env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (built,) = out.iterdir()
    return built, done.stdout + done.stderr


def tag(wheel: Path) -> str:
    return wheel.stem.split("-", 2)[2]


def has_library(wheel: Path) -> bool:
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith("/WHEEL"))
        purelib = "Root-Is-Purelib: true" in archive.read(metadata).decode()
        has = LIBRARY in archive.namelist()
    assert purelib is not has
    return has


def load(wheel: Path, folder: Path) -> ctypes.CDLL:
    with zipfile.ZipFile(wheel) as archive:
        return ctypes.CDLL(archive.extract(LIBRARY, folder))


@compiled
def test_the_wheel_has_the_library_and_is_for_one_platform(root: Path, tmp_path: Path) -> None:
    wheel, said = build(root)
    assert tag(wheel) == "py3-none-linux_x86_64", said
    assert has_library(wheel)
    assert load(wheel, tmp_path).number() == 7


@pytest.mark.parametrize("where", [NO_COMPILER, OTHER_PLATFORM])
def test_elsewhere_the_wheel_is_pure(root: Path, where: dict[str, str]) -> None:
    (root / NATIVE / "libkutta.so").write_bytes(b"compiled earlier")
    os.utime(root / NATIVE / "libkutta.so", (0, 0))
    (root / ".gitignore").unlink()  # hatchling ignores it in some folders, such as /build
    wheel, said = build(root, **where)
    assert tag(wheel) == "py3-none-any"
    assert not has_library(wheel)
    assert said.count(NOT_BUILT) == 1


@compiled
def test_the_sources_of_kutta_compile_without_a_warning(root: Path, tmp_path: Path) -> None:
    shutil.rmtree(root / NATIVE)
    shutil.copytree(ROOT / NATIVE, root / NATIVE, ignore=shutil.ignore_patterns("*.so"))
    wheel, said = build(root)
    assert "warning:" not in said
    assert has_library(wheel), said
    load(wheel, tmp_path)  # every symbol is there; nothing runs that this CPU may not have


@compiled
def test_warnings_of_the_compiler_are_told(root: Path) -> None:
    (root / NATIVE / "careless.c").write_text("int careless(int unused) { return 0; }\n")
    wheel, said = build(root)
    assert has_library(wheel)
    assert "src/kutta/native/careless.c:1:" in said
    assert "warning:" in said


@compiled
def test_an_error_of_the_compiler_is_told_in_a_line(root: Path) -> None:
    (root / NATIVE / "broken.c").write_text("int broken(void) { return nothing; }\n")
    wheel, said = build(root)
    assert not has_library(wheel)
    (line,) = (line for line in said.splitlines() if NOT_BUILT in line)
    assert "src/kutta/native/broken.c:1:" in line
    assert str(root) not in line
    assert {path.name for path in (root / NATIVE).iterdir()} == {"broken.c", *SMALL}


def test_a_compiler_that_dies_leaves_no_file(root: Path, tmp_path: Path) -> None:
    dies = tmp_path / "dies.py"
    dies.write_text("import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w'); sys.exit(1)")
    wheel, said = build(root, CC=shlex.join([sys.executable, str(dies)]))
    assert not has_library(wheel)
    assert NOT_BUILT in said
    assert {path.name for path in (root / NATIVE).iterdir()} == {*SMALL}


@compiled
def test_a_library_newer_than_its_sources_is_not_compiled_again(root: Path) -> None:
    build(root)
    assert has_library(build(root, **NO_COMPILER)[0])


@compiled
@pytest.mark.parametrize("changed", ["hatch_build.py", f"{NATIVE}/small.c", f"{NATIVE}/small.h"])
def test_an_old_library_does_not_stay_where_it_cannot_be_compiled(root: Path, changed: str) -> None:
    build(root)
    later = (root / NATIVE / "libkutta.so").stat().st_mtime_ns + 1_000_000_000
    os.utime(root / changed, ns=(later, later))
    assert not has_library(build(root, **NO_COMPILER)[0])
    assert {path.name for path in (root / NATIVE).iterdir()} == {*SMALL}


def test_the_sdist_has_the_sources_and_not_the_library(root: Path) -> None:
    (root / NATIVE / "libkutta.so").write_bytes(b"compiled earlier")
    (root / ".gitignore").unlink()
    sdist, _ = build(root, "sdist")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"hatch_build.py", *(str(NATIVE / name) for name in SMALL)} <= inside
    assert not any(name.endswith(".so") for name in inside)
