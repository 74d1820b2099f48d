"""Opening a run: made or recognised, locked, its text prepared, nothing foreign touched."""

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
from kutta.runs.device import as_begun, begun_config
from kutta.runs.growing import check_shallow, shallow_tokenizers
from kutta.runs.run import CONFIG, Run


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Keep other processes from training in the same folder.

    The folder itself is locked (where the system can), so nothing is left behind by a process that
    was killed.
    """
    if path.exists() and not _is_ours(path):
        raise _foreign(path)
    busy = f"Another process is training in {path}; wait until it ends, or choose another run."
    with ExitStack() as held:
        try:
            held.enter_context(locked_folder(path, busy))
        except OSError as error:
            raise InputError(
                f"Cannot write to {path}: {error.strerror or error}; choose another folder for run."
            ) from error
        yield


def open_run(config: Config, overwrite: bool = False) -> Run:
    """Make the run folder, or check that what was made in it belongs to these settings."""
    path = Path(config.run)
    if path.exists() and not _is_ours(path):
        raise _foreign(path)
    begun = begun_config(path)
    if overwrite or begun is None:
        check_shallow(config)
    if path.exists() and overwrite:
        check_text(config.data, [config.data.train, config.data.valid])
        for inside in path.iterdir():
            if inside.name != CONFIG:  # stays until it is replaced: half-emptied, it is still a run
                remove(inside)
    check_same(config)
    run = Run(path, as_begun(config))
    for folder in (path, run.stores, path / CHECKPOINTS):
        for leftover in list(folder.glob(".*.tmp")):  # of a process that was killed
            remove(leftover)
    run.write_config()
    return run


def check_same(config: Config) -> None:
    """Refuse a run that was begun with other settings.

    What is already there decides what may still change: text settings until the text is prepared,
    all others until the first checkpoint.
    """
    path = Path(config.run)
    if not Run.is_at(path):
        return
    begun, kept = begun_config(path), Run.load(path)
    sections = ["data"] if kept.is_prepared or begun else []
    sections += ["model", "train"] if begun else []
    difference = (begun or kept.config).conflict(as_begun(config), sections)
    if difference:
        raise InputError(
            f"{path} holds a run of another config ({difference}); choose another run, or "
            "add --overwrite to remove that one and start again."
        )


def check_text(data: DataConfig, names: Iterable[str]) -> None:
    """Read the first pair of each corpus: a missing file shows now, not in an hour."""
    for name in names:
        next(read_pairs(Path(data.dir), name, data.source, data.target))


def prepare_run(run: Run) -> Report | None:
    """Keep the text to score, learn tokenizers and write stores where they are missing.

    None if all is there.
    """
    config = run.config
    if run.is_prepared:
        return None
    run.texts.keep()
    # A model that has begun to learn keeps the tokens it knows, and so does one that grows.
    known = Tokenizers.load(run.path) if run.checkpoints() else shallow_tokenizers(config)
    report = prepare(config.data, run.stores, run.path, known)
    write_json(run.report, report.to_dict())
    return report


def _is_ours(path: Path) -> bool:
    """Whether this is an empty folder or a run: no other is written to or removed."""
    if Run.is_at(path):
        return True
    begun = (inside.name.startswith(f".{CONFIG}.") for inside in path.glob("*"))
    return path.is_dir() and all(begun)


def _foreign(path: Path) -> InputError:
    return InputError(f"{path} is there but is not a run of Kutta; choose another folder.")
