"""The models in the box: trained models that are shipped with Kutta, a folder each.

en-de/  config.json  tokenizer.model  model.safetensors (8 bits)  encoder.onnx  decoder.onnx
        export.json  checksums.json  card.json  README.md

A model is an exported model, which translates without torch, and a run directory without what only
training needs, so it is read as every run is. Its name stands for it wherever a run is read.
`tools/ship.py` makes it from a finished run.
"""

import difflib
import os
from pathlib import Path

from kutta.config import CONFIG
from kutta.errors import InputError

BOX = Path(__file__).parent
CARD = "card.json"  # the facts of the model card, for programs; every model has one


def models() -> dict[str, Path]:
    """The folders of the models by name, in alphabetical order."""
    found = sorted(BOX.glob(f"[!._]*/{CARD}"))
    return {card.parent.name: card.parent for card in found}


def find_run(given: str | Path) -> Path:
    """The folder at this path, or the model of this name where there is no such folder."""
    if os.path.isdir(given):  # unlike Path.is_dir, no error where a name is too long for a file
        return Path(given)
    known = models()
    if str(given) in known:
        return known[str(given)]
    names = f", or a model in the box: {', '.join(known)}" if known else ""
    if os.path.isfile(given):
        raise InputError(f"{given} is a file; give {_run_of(Path(given))}{names}.")
    near = _similar_run(Path(given))
    hint = f"; did you mean {near}?" if near else f"; give a run directory{names}."
    raise InputError(f"There is no folder {given}{hint}")


def _run_of(file: Path) -> str:
    """The run directory that was meant where one of its files or its config was given."""
    for folder in (*file.parents,)[:3]:  # a file of the run, or of one of its checkpoints
        if (folder / CONFIG).is_file():
            return f"the run directory {folder}"
    named = f", which its setting run names (by default runs/{file.stem})"
    return f"the run directory{named if file.suffix == '.toml' else ''}"


def _similar_run(path: Path) -> Path | None:
    """The run of nearly this name, in the same folder or in runs."""
    places = [place for place in (path.parent, Path("runs")) if os.path.isdir(place)]
    runs = {file.parent.name: file.parent for at in places for file in at.glob(f"*/{CONFIG}")}
    near = difflib.get_close_matches(path.name, runs, n=1)
    return runs[near[0]] if near else None


def is_in_box(path: Path) -> bool:
    """Whether a path is in the box, where nothing is written."""
    return path.resolve().is_relative_to(BOX.resolve())
