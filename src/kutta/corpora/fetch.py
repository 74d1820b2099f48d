"""Verified files: downloaded manually, earlier or now. Checksums are trusted on first use."""

from pathlib import Path, PurePosixPath
from typing import Any, cast
from urllib.parse import urlsplit

import pooch
from pooch.hashes import hash_matches  # pyright: ignore[reportUnknownVariableType]
from rich.progress import Progress

from kutta.corpora.download import Patience, Resume
from kutta.corpora.sources import Source
from kutta.errors import InputError
from kutta.files import write_json
from kutta.parsing import read_json

RECORD = "checksums.json"


def fetch(
    name: str,
    source: Source,
    folder: Path,
    by_hand: Path | None,
    patience: Patience,
    progress: Progress,
) -> Path:
    """The file `name`: from the folder `by_hand`, else from `folder`, else from its address.

    It is checked against the checksum recorded on first use, or the published one.
    """
    known = recorded(folder).get(name) or source.checksum or None
    if by_hand and (path := _find(by_hand, name, source)):
        if not hash_matches(path, known):
            raise _changed(name, path, known, folder)
        return path
    pooch.get_logger().setLevel("WARNING")  # the progress bar shows the rest
    task = progress.add_task(name, total=None, unit="bytes")
    resume = Resume(
        folder / f"{name}.part",
        patience,
        lambda have, total: progress.update(task, completed=have, total=total),
    )
    try:
        pooch.retrieve(source.url, known, name, folder, downloader=cast(Any, resume))
    except ValueError as error:  # raised by pooch for a wrong checksum
        raise _changed(name, resume.part, known, folder) from error
    except OSError as error:
        raise InputError(
            f"Cannot write downloads to {folder}: {error.strerror or error}; choose another --dir."
        ) from error
    finally:
        progress.remove_task(task)
    resume.done()
    return folder / name


def recorded(folder: Path) -> dict[str, str]:
    """The recorded sha256 of every file used so far, by name."""
    path = folder / RECORD
    if not path.is_file():
        return {}
    try:
        found: Any = read_json(path)
        return {str(name): str(sha256) for name, sha256 in cast(dict[Any, Any], found).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged ({error}); repair it, or delete it to trust the existing files."
        ) from error


def record(folder: Path, files: dict[str, Path]) -> dict[str, str]:
    """Record the sha256 of `files` on first use; return them."""
    known = recorded(folder)
    found = {name: known.get(name) or pooch.file_hash(str(path)) for name, path in files.items()}
    if not found.items() <= known.items():
        write_json(folder / RECORD, known | found)
    return found


def _find(folder: Path, name: str, source: Source) -> Path | None:
    """A file under our name or under its published name."""
    published = PurePosixPath(urlsplit(source.url).path).name
    return next((folder / n for n in (name, published) if (folder / n).is_file()), None)


def _changed(name: str, path: Path, known: str | None, folder: Path) -> InputError:
    sha256 = pooch.file_hash(str(path))
    return InputError(
        f"{path} has the wrong checksum: {sha256}, not {known}; delete it (or save the right file "
        f"as {name}) and run the same command, or, if {name} was republished, first put "
        f'"{name}": "{sha256}" into {folder / RECORD}.'
    )
