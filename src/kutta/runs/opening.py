"""Opening a run: create or check its directory, and lock it."""

from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kutta.box import is_in_box
from kutta.config import CONFIG, Config, DataConfig
from kutta.data.corpus import read_pairs
from kutta.errors import InputError
from kutta.files import is_temporary, locked_folder, remove_leftovers
from kutta.integrity import check
from kutta.runs.checkpoints import FOLDER as CHECKPOINTS
from kutta.runs.checkpoints import list_checkpoints
from kutta.runs.device import as_started, started_config
from kutta.runs.growing import check_shallow
from kutta.runs.preparing import install_prepared
from kutta.runs.run import Run


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock of a run, so that no other process trains in it.

    The folder itself is locked (where supported), so a killed process leaves no stale lock.
    """
    _check_place(path)
    busy = f"Another process is training in {path}; wait until it exits, or choose another run."
    with ExitStack() as held:
        try:
            held.enter_context(locked_folder(path, busy))
        except OSError as error:
            raise InputError(
                f"Cannot write to {path}: {error.strerror or error}; choose another folder for run."
            ) from error
        yield


def open_run(config: Config) -> Run:
    """Create the run directory, or check that an existing run has the same settings."""
    path = Path(config.run)
    _check_place(path)
    if started_config(path) is None:
        check_shallow(config)
    check_same(config)
    run = Run(path, as_started(config))
    for folder in (path, run.stores, path / CHECKPOINTS):
        remove_leftovers(folder)
    install_prepared(run)
    run.write_config()
    return run


def at_least_reached(config: Config) -> Config:
    """The config, with train.max_steps raised to the step that its run has reached.

    So the config of a run is true of its model, whatever number is asked for afterwards.
    """
    checkpoints, settings = list_checkpoints(Path(config.run)), config.train
    if not checkpoints or checkpoints[-1].step <= settings.max_steps:
        return config
    reached = settings.model_copy(update={"max_steps": checkpoints[-1].step})
    return config.model_copy(update={"train": reached})


def check_same(config: Config) -> None:
    """Reject a run that was started with other settings.

    Settings of [data] may change until the text is prepared, all others until the first checkpoint.
    """
    path = Path(config.run)
    _check_place(path)
    if not Run.is_at(path):
        return
    started, kept = started_config(path), Run.load(path)
    sections = ["data"] if kept.is_prepared or started else []
    sections += ["model", "train"] if started else []
    difference = (started or kept.config).conflict(as_started(config), sections)
    if difference:
        raise InputError(
            f"{path} contains a run of another config ({difference}); choose another run, or "
            "add --overwrite to start over."
        )


def check_text(data: DataConfig, names: Iterable[str]) -> None:
    """Read the first pair of each corpus, to find a missing file now and not in an hour."""
    for name in names:
        next(read_pairs(data, name))


def _check_place(path: Path) -> None:
    """Reject a folder that is in the box, or neither empty nor a run: it is not written to."""
    if is_in_box(path):
        raise InputError(
            f"{path} is in the box of models shipped with Kutta, which training does not change; "
            "choose another run."
        )
    if Run.is_at(path) or not path.exists():
        return
    if path.is_dir():
        check(path / CONFIG)
    if not (path.is_dir() and all(is_temporary(inside.name) for inside in path.glob("*"))):
        raise InputError(f"{path} exists but is not a Kutta run; choose another folder.")
