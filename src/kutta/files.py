"""Atomic writes, links and locks."""

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
    """Yield a temporary path beside `path`; on success it is renamed to `path` in one step.

    Works for files and directories. If the body fails, `path` is left untouched and the temporary
    is removed. An OSError, such as a full disk, becomes an InputError. Pipes and devices
    (/dev/stdout) are written to directly.
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
        _replace(temporary, path)
    except OSError as error:
        raise InputError(
            f"Cannot write {path}: {error.strerror or error}; the previous contents are unchanged. "
            "Free some disk space or choose another location, then run the same command again."
        ) from error
    finally:
        remove(temporary)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link `source` to `target`, replacing it; copy where the file system has no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove(target)
    try:
        os.link(source, target)
    except OSError:
        with atomic_path(target) as temporary:
            shutil.copyfile(source, temporary)


def remove(path: Path) -> None:
    """Delete a file or a directory if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()


def lock(handle: int, busy: str) -> None:
    """Lock an open file or folder until it is closed; `busy` is the error if it is already locked.

    Without support for locks this does nothing. Processes that inherit the handle hold the lock
    until the last of them has exited.
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
    """Create a folder and hold its lock; a killed process leaves no stale lock behind."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock(handle, busy)
        yield handle
    finally:
        os.close(handle)


def _replace(temporary: Path, path: Path) -> None:
    """Rename `temporary` to `path`; an existing folder is removed only afterwards."""
    if not (temporary.is_dir() and path.is_dir()):  # a file does not replace a folder
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
    """Flush a file, or every file of a directory, to disk before it is renamed."""
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        with open(file, "rb") as handle:
            os.fsync(handle.fileno())
