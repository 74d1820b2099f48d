"""Writing files so that nothing the user made is ever lost half-way."""

import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

from kutta.errors import InputError


@contextmanager
def atomic_path(path: Path) -> Generator[Path]:
    """Yield a temporary path beside `path`; on success it takes the final name in one step.

    Works for files and directories. When the body fails, what was at `path` before is untouched
    and the temporary is removed. A full disk becomes an InputError that says so. A pipe or a
    device (/dev/stdout) is written to as it is.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove(temporary)
        yield temporary
        _sync(temporary)
        _take_place(temporary, path)
    except OSError as error:
        remove(temporary)
        raise InputError(
            f"Cannot write {path}: {error.strerror or error}; what was there before is kept. "
            "Free some space or choose another place, then run the same command again."
        ) from error
    except BaseException:
        remove(temporary)
        raise


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name in place of what is there; a copy where the disk has no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove(target)
    try:
        os.link(source, target)
    except OSError:
        with atomic_path(target) as temporary:
            shutil.copyfile(source, temporary)


def remove(path: Path) -> None:
    """Delete a file or a directory, whether it is there or not."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()


def lock(handle: int, busy: str) -> None:
    """Lock an open file or folder until it is closed; `busy` is said where another process has it.

    Where the system has no locks, nothing is locked. Processes that inherit the handle keep the
    lock until the last of them has ended.
    """
    if fcntl is None:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(busy) from None
    except OSError:
        pass  # a file system without locks


@contextmanager
def locked_folder(folder: Path, busy: str) -> Generator[int]:
    """Make a folder and hold its lock; a process that is killed leaves nothing behind."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock(handle, busy)
        yield handle
    finally:
        os.close(handle)


def _take_place(temporary: Path, path: Path) -> None:
    """Give `temporary` the name `path`; a folder in the way is removed only afterwards."""
    if not (temporary.is_dir() and path.is_dir()):  # a file does not take the place of a folder
        os.replace(temporary, path)
        return
    before = path.with_name(f".{path.name}.{os.getpid()}.before.tmp")
    remove(before)
    os.replace(path, before)
    try:
        os.replace(temporary, path)
    except BaseException:
        os.replace(before, path)
        raise
    remove(before)


def _sync(path: Path) -> None:
    """Push a file, or every file of a directory, to the disk before it gets its final name."""
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        with open(file, "rb") as handle:
            os.fsync(handle.fileno())
