"""Opening a run: create or check its directory, lock it, prepare its text."""

from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kutta.config import Config, DataConfig
from kutta.data.corpus import read_pairs
from kutta.data.prepare import Report, prepare
from kutta.data.tokenizer import Tokenizers
from kutta.errors import InputError
from kutta.files import locked_folder, remove, write_json
from kutta.runs.checkpoints import FOLDER as CHECKPOINTS
from kutta.runs.device import as_started, started_config
from kutta.runs.growing import check_shallow, shallow_tokenizers
from kutta.runs.run import CONFIG, Run


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock of a run, so that no other process trains in it.

    The folder itself is locked (where supported), so a killed process leaves no stale lock.
    """
    if path.exists() and not _is_ours(path):
        raise _foreign(path)
    busy = f"Another process is training in {path}; wait until it exits, or choose another run."
    with ExitStack() as held:
        try:
            held.enter_context(locked_folder(path, busy))
        except OSError as error:
            raise InputError(
                f"Cannot write to {path}: {error.strerror or error}; choose another folder for run."
            ) from error
        yield


def open_run(config: Config, overwrite: bool = False) -> Run:
    """Create the run directory, or check that an existing run has the same settings."""
    path = Path(config.run)
    if path.exists() and not _is_ours(path):
        raise _foreign(path)
    started = started_config(path)
    if overwrite or started is None:
        check_shallow(config)
    if path.exists() and overwrite:
        check_text(config.data, [config.data.train, config.data.valid])
        for inside in path.iterdir():
            if inside.name != CONFIG:  # replaced later: a partly emptied folder is still a run
                remove(inside)
    check_same(config)
    run = Run(path, as_started(config))
    for folder in (path, run.stores, path / CHECKPOINTS):
        for leftover in list(folder.glob(".*.tmp")):  # of a process that was killed
            remove(leftover)
    run.write_config()
    return run


def check_same(config: Config) -> None:
    """Reject a run that was started with other settings.

    Settings of [data] may change until the text is prepared, all others until the first checkpoint.
    """
    path = Path(config.run)
    if not Run.is_at(path):
        return
    started, kept = started_config(path), Run.load(path)
    sections = ["data"] if kept.is_prepared or started else []
    sections += ["model", "train"] if started else []
    difference = (started or kept.config).conflict(as_started(config), sections)
    if difference:
        raise InputError(
            f"{path} contains a run of another config ({difference}); choose another run, or "
            "add --overwrite to remove it and start over."
        )


def check_text(data: DataConfig, names: Iterable[str]) -> None:
    """Read the first pair of each corpus, to find a missing file now and not in an hour."""
    for name in names:
        next(read_pairs(Path(data.dir), name, data.source, data.target))


def prepare_run(run: Run) -> Report | None:
    """Save the text to score, learn tokenizers and write stores; None if that is already done."""
    config = run.config
    if run.is_prepared:
        return None
    run.texts.keep()
    # A run that has started keeps its vocabulary, and a grown model that of the shallow one.
    known = Tokenizers.load(run.path) if run.checkpoints() else shallow_tokenizers(config)
    report = prepare(config.data, run.stores, run.path, known)
    write_json(run.report, report.to_dict())
    return report


def _is_ours(path: Path) -> bool:
    """Whether this is an empty folder or a run: others are never written to or removed."""
    if Run.is_at(path):
        return True
    temporary = (inside.name.startswith(f".{CONFIG}.") for inside in path.glob("*"))
    return path.is_dir() and all(temporary)


def _foreign(path: Path) -> InputError:
    return InputError(f"{path} exists but is not a Kutta run; choose another folder.")
