"""The wheel and the sdist have the models of the box, and the wheel's models work as they are."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from kutta.box import BOX

ROOT = Path(__file__).parents[2]
FILES = {
    *("README.md", "card.json", "checksums.json", "config.json", "export.json"),
    *("decoder.onnx", "encoder.onnx", "model.safetensors", "tokenizer.model"),
}


@pytest.fixture(scope="module")
def built(full_box: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a wheel and an sdist of this checkout, with xx-yy in the box."""
    if find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed; it is in the extra dev")
    root, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("built")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, root)
    for name in ("src", "configs", "experiments"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(full_box / "xx-yy", root / "src" / "kutta" / "box" / "xx-yy")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", out]
    done = subprocess.run(build, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def test_the_wheel_has_every_file_of_every_model(built: Path, full_box: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for name in FILES:
            content = (full_box / "xx-yy" / name).read_bytes()
            assert archive.read(f"kutta/box/xx-yy/{name}") == content
    real = {f"kutta/box/{file.relative_to(BOX)}" for file in BOX.glob("[!._]*/*")}
    assert real <= names
    assert "kutta/box/__init__.py" in names
    assert "kutta/configs/multi30k-rk2.toml" in names


def test_the_sdist_has_them_too(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/kutta/box/xx-yy/{name}" for name in FILES} <= inside


def test_a_model_of_the_wheel_translates_right_after_installing(
    built: Path, tmp_path: Path
) -> None:
    (wheel,) = built.glob("*.whl")
    site, here = tmp_path / "site", tmp_path / "here"
    here.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)

    def kutta(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "kutta", *words],
            cwd=here,
            env=os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"},
            input="ba be bi\n",
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert any(line.startswith("xx-yy  ") for line in kutta("models").splitlines())
    assert kutta("translate", "xx-yy").count("\n") == 1
    assert list(here.iterdir()) == []
