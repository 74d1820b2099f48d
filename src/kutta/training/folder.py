"""The folder of a run: made or recognised, its text prepared, nothing foreign touched."""

import json
import os
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

from kutta.config import Config, DataConfig
from kutta.data.corpus import read_pairs
from kutta.data.prepare import Report, prepare
from kutta.data.tokenizer import Tokenizers
from kutta.errors import InputError
from kutta.files import remove, write_json, write_text
from kutta.training.beginning import check_shallow, shallow_tokenizers
from kutta.training.checkpoint import FOLDER as CHECKPOINTS
from kutta.training.checkpoint import list_checkpoints
from kutta.training.resolve import as_begun, begun_config


@contextmanager
def alone(run: Path) -> Generator[None]:
    """Keep other processes from training in the same folder.

    The folder itself is locked (where the system can), so nothing is left behind by a process that
    was killed.
    """
    if run.exists() and not _is_ours(run):
        raise _foreign(run)
    with ExitStack() as held:
        try:
            run.mkdir(parents=True, exist_ok=True)
            if fcntl is not None:
                folder = os.open(run, os.O_RDONLY)
                held.callback(os.close, folder)
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"Another process is training in {run}; wait until it ends, or choose another run."
            ) from None
        except OSError as error:
            raise InputError(
                f"Cannot write to {run}: {error.strerror or error}; choose another folder for run."
            ) from error
        yield


def open_run(config: Config, overwrite: bool = False) -> Path:
    """Make the run folder, or check that what was made in it belongs to these settings."""
    run = Path(config.run)
    kept = run / "config.json"
    if run.exists() and not _is_ours(run):
        raise _foreign(run)
    if overwrite or not list_checkpoints(run):
        check_shallow(config)
    if run.exists() and overwrite:
        check_text(config.data, [config.data.train, config.data.valid])
        for path in run.iterdir():
            if path != kept:  # stays until it is replaced: half-emptied, this is still a run
                remove(path)
    check_same(config)
    config = as_begun(config)
    for folder in (run, run / "store", run / CHECKPOINTS):
        for leftover in list(folder.glob(".*.tmp")):  # of a process that was killed
            remove(leftover)
    write_text(kept, config.to_json())
    return run


def check_same(config: Config) -> None:
    """Refuse a run that was begun with other settings.

    What is already there decides what may still change: text settings until the text is prepared,
    all others until the first checkpoint.
    """
    run = Path(config.run)
    if not (run / "config.json").is_file():
        return
    begun = bool(list_checkpoints(run))
    sections = ["data"] if is_prepared(run) or begun else []
    sections += ["model", "train"] if begun else []
    kept = begun_config(run) or Config.load(run / "config.json")
    difference = kept.conflict(as_begun(config), sections)
    if difference:
        raise InputError(
            f"{run} holds a run of another config ({difference}); choose another run, or "
            "add --overwrite to throw that one away and begin anew."
        )


def is_prepared(run: Path) -> bool:
    """Whether the tokenizers and the stores of a run are complete."""
    return (run / "store" / "report.json").is_file()


def _is_ours(run: Path) -> bool:
    """Whether this is an empty folder or a run: no other is written to or thrown away."""
    try:
        values: Any = json.loads((run / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        begun = (path.name.startswith(".config.json.") for path in run.glob("*"))
        return run.is_dir() and all(begun)
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and all(name in values for name in Config.model_fields)


def _foreign(run: Path) -> InputError:
    return InputError(f"{run} is there but is not a run of Kutta; choose another folder.")


def check_text(data: DataConfig, names: Iterable[str]) -> None:
    """Read the first pair of each corpus: a missing file shows now, not in an hour."""
    for name in names:
        next(read_pairs(Path(data.dir), name, data.source, data.target))


def prepare_run(config: Config, run: Path) -> Report | None:
    """Learn the tokenizers and write the stores where they are missing; None if all is there."""
    if is_prepared(run):
        return None
    data = config.data
    report = prepare(
        Path(data.dir),
        data.source,
        data.target,
        out=run / "store",
        tokenizer_folder=run,
        train=data.train,
        valid=data.valid,
        tokenizer=data.tokenizer,
        vocab_size=data.vocab_size,
        shared_vocab=data.shared_vocab,
        max_length=data.max_length,
        max_source=data.max_source,
        max_ratio=data.max_ratio,
        dictionaries=tuple(Path(data.dir) / name for name in data.vocabulary),
        # A model that has begun to learn keeps the tokens it knows, and so does one that grows.
        tokenizers=Tokenizers.load(run) if list_checkpoints(run) else shallow_tokenizers(config),
    )
    write_json(run / "store" / "report.json", report.to_dict())
    return report


def prepared_report(run: Path) -> dict[str, Any]:
    """What preparing the data of this run did."""
    return json.loads((run / "store" / "report.json").read_text(encoding="utf-8"))
