"""Overwriting a run: a new one is made beside it, and takes its place when it is finished.

The new one is in NAME.new until then; the same command resumes it after an interruption. Files in
the old run that are not part of a run, such as text, are kept.
"""

import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from kutta.config import CONFIG, WEIGHTS, Config
from kutta.errors import InputError
from kutta.files import (
    discard,
    followed,
    is_temporary,
    link_or_copy,
    remove_leftovers,
    swap,
    write_text,
    writing,
)
from kutta.integrity import MANIFEST
from kutta.runs.checkpoints import FOLDER as CHECKPOINTS
from kutta.runs.device import as_started
from kutta.runs.run import JOB, METRICS, Run

_REPLACES, _REPLACED = "replaces", "replaced"  # files that mark the new folder and the old one
# What a run consists of, and what commands write about it. Everything else is of the user.
_OF_A_RUN = (
    *(CONFIG, MANIFEST, WEIGHTS, METRICS, JOB, "README.md", "train.log", _REPLACES, _REPLACED),
    *("tokenizer*.model", "vocab*.txt", f"{CHECKPOINTS}/step-*/*", "tensorboard/events.*"),
    *(f"store/{name}" for name in ("train.arrow", "valid.arrow", "report.json", MANIFEST)),
    *(f"text/{name}" for name in ("valid.source", "valid.target", MANIFEST)),
    *(f"text/test/*.{side}" for side in ("source", "target", "raw")),
    *("hypotheses/*", "analysis/*", "training.png"),
    *(".kutta-*.tmp", ".kutta-*.tmp/*", "*/.kutta-*.tmp", "*/.kutta-*.tmp/*"),
)


def replacement_of(path: Path) -> Path:
    """Where the folder that replaces this one is made; a link to a folder stays a link."""
    home = followed(path)
    return home.with_name(f"{home.name}.new")


def is_being_replaced(path: Path) -> bool:
    """Whether an interrupted command has begun to replace this folder."""
    return (replacement_of(path) / _REPLACES).is_file()


def begin_replacement(config: Config) -> Config:
    """The config of the run that is to replace that of this config, in its own folder."""
    path = Path(config.run)
    new = replacement_of(path)
    if (new / _REPLACED).is_file():
        discard(new)  # the old folder of a replacement that was killed at its very end
    if _is_in_use(new) and not is_being_replaced(path):
        raise InputError(
            f"{new} is the place for the new run, but there is something else; move it elsewhere."
        )
    planned = config.model_copy(update={"run": str(new)})
    if Run.is_at(new) and Run.load(new).config.conflict(
        as_started(planned), ["data", "model", "train"]
    ):
        discard(new)  # begun with other settings, and not finished
    write_text(new / _REPLACES, f"{path.name}\n")
    if not Run.is_at(new):
        Run(new, planned).write_config()
    return planned


def _is_in_use(folder: Path) -> bool:
    """Whether something is there that a command which failed at once has not left."""
    if not folder.is_dir():
        return folder.exists()
    return any(not is_temporary(path.name) for path in folder.iterdir())


def finish_replacement(path: Path) -> None:
    """Put the finished run in the place of the old one, with the files that are not of a run."""
    home, new = followed(path), replacement_of(path)
    made = Run.load(new)
    Run(new, made.config.model_copy(update={"run": str(path)})).write_config()
    with writing(path):
        for inside in _of_the_user(home):
            target = new / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_symlink() or target.exists():
                continue
            if (home / inside).is_symlink():
                target.symlink_to(os.readlink(home / inside))
            else:
                link_or_copy(home / inside, target)
        write_text(home / _REPLACED, "")
        swap(new, home)
        (home / _REPLACES).unlink()
        remove_leftovers(home.parent)


def _of_the_user(folder: Path) -> Iterator[Path]:
    """The files in a run, by their relative paths, that Kutta did not write."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in (*files, *links):
            inside = (Path(place) / name).relative_to(folder)
            if not any(fnmatch(inside.as_posix(), pattern) for pattern in _OF_A_RUN):
                yield inside
