"""Kutta: PyTorch from a run, the runtime from what `kutta export` wrote, and an earlier commit."""

import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from environments import Absent, clean, last_line, run

from decoders.decoder import TRAINED, Case, Job, Model, Place, Program, Way, script
from kutta import __version__
from kutta.config import CONFIG
from kutta.integrity import MANIFEST, write_manifest
from kutta.runtime.program import PROGRAM as FOR_KERNELS

ROOT = Path(__file__).parents[2]
TORCH, RUNTIME = "Kutta torch", "Kutta runtime"
BEFORE, SHORTLIST, GRAPHS = "before", "shortlist", "onnxruntime"
# What `kutta export` is told for each way of the runtime.
EXPORTS = {
    ("fp32", ""): ("--precision", "fp32"),
    ("int8", ""): ("--precision", "int8"),
    ("fp32", SHORTLIST): ("--precision", "fp32", "--shortlist"),
    ("int8", SHORTLIST): ("--precision", "int8", "--shortlist"),
    ("int8", GRAPHS): ("--precision", "int8"),  # and without the program for the kernels
}


def ways(case: Case, threads: int) -> list[Way]:
    """Residual and trained models in every way; other methods where they are compared."""
    runtime = [Way(RUNTIME, case, precision, option=option) for precision, option in EXPORTS]
    torch = Way(TORCH, case, "fp32")
    if case.method != "residual" and case.size != TRAINED:
        return [runtime[1], torch]
    return [*runtime, torch, Way(TORCH, case, "fp32", option=BEFORE)]


def job(place: Place, model: Model, way: Way) -> Job:
    """Kutta arranges its workers and threads by itself."""
    python, folder = Path(sys.executable), model.run.path
    source = ROOT / "src"
    if way.option == BEFORE:
        if place.before is None:
            raise Absent("no earlier commit was given (--before COMMIT)")
        source = place.before / "src"
        folder = earlier(folder, place.work / "before", source)
    if way.program == RUNTIME:
        folder = exported(place, model, way)
    return Job(script(python, "kutta", folder, {}), {"PYTHONPATH": str(source)}, folder)


def exported(place: Place, model: Model, way: Way) -> Path:
    """What the runtime reads, written by the command of this checkout."""
    folder = place.work / "-".join(filter(None, ("runtime", way.precision, way.option)))
    words = EXPORTS[way.precision, way.option]
    if not folder.exists():
        command = [sys.executable, "-m", "kutta", "export", str(model.run.path), str(folder)]
        run([*command, *words], PYTHONPATH=str(ROOT / "src"))
        if way.option == GRAPHS:
            (folder / FOR_KERNELS).unlink(missing_ok=True)
            write_manifest(folder)
    return folder


def checkout(commit: str, folder: Path) -> Path:
    """The source of an earlier commit, in a new folder."""
    command = ["git", "-C", str(ROOT), "archive", commit, "src"]
    made = subprocess.run(command, capture_output=True)
    if made.returncode:
        raise SystemExit(f"--before {commit}: {made.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def earlier(run: Path, folder: Path, source: Path) -> Path:
    """The run as an earlier Kutta reads it: only with the settings that it knows."""
    if folder.exists():
        return folder
    asked = "import json; from kutta.config import known_keys; print(json.dumps(known_keys()))"
    environment = clean(PYTHONPATH=str(source))
    answer = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, env=environment
    )
    if answer.returncode:
        raise Absent(f"that commit does not name its settings: {last_line(answer.stderr)}")
    known = set(json.loads(answer.stdout))
    config: dict[str, Any] = json.loads((run / CONFIG).read_text("utf-8"))
    del config["train"]  # decoding does not read it, and its settings may have had other values
    for section, values in config.items():
        if isinstance(values, dict):
            config[section] = {k: v for k, v in values.items() if f"{section}.{k}" in known}
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns(CONFIG, MANIFEST))
    (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    return folder


PROGRAM = Program("Kutta", lambda: __version__, ways, job)
