"""Atomic writes, links and locks."""

import ctypes
import hashlib
import json
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

from kutta.errors import InputError

# .kutta-HOST-PID-NAME-NUMBER.tmp: ours, and whose
_TEMPORARY = re.compile(r"\.kutta-([0-9a-f]{8})-([0-9]{1,10})-.*\.tmp", re.DOTALL)
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_NUMBERS = count()
_CLEANED: set[str] = set()  # the folders that this process has written to
_ABANDONED = 86_400  # seconds after which a temporary file of another machine is left over


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
    temporary = path.with_name(_temporary_name(path.name))
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _clean_once(path.parent)
            remove(temporary)
            yield temporary
            _sync(temporary)
            _replace(temporary, path)
    finally:
        with suppress(OSError):  # a disk that fails is reported once
            remove(temporary)


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Report an OSError, such as a full disk, in one sentence about `path`."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"Cannot write {path}: {error.strerror or error}; the previous contents are unchanged. "
            "Free some disk space or choose another location, then run the same command again."
        ) from error


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


def discard(path: Path) -> None:
    """Delete a file or a directory by renaming it first: no part of it is taken for the whole."""
    if path.is_symlink() or path.exists():
        with writing(path):
            remove(path.rename(path.with_name(_temporary_name(path.name))))


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


def followed(path: Path) -> Path:
    """The file that a symbolic link leads to, for a user who names the link as an output."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def is_temporary(name: str) -> bool:
    """Whether this is the name of a temporary file of Kutta."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_leftovers(folder: Path, own: bool = True) -> None:
    """Delete the temporary files in a folder whose process was killed.

    Only those that `atomic_path` names, and none in a folder that is a symbolic link. A process of
    another machine may still run, so its files stay for a day. Those with the number of this
    process are of an earlier one, unless it has begun to write here (`own`).
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in list(folder.iterdir()):
        owner = _TEMPORARY.fullmatch(path.name)
        if owner is None or path.is_symlink() or (not own and int(owner[2]) == os.getpid()):
            continue
        if not _is_used(path, owner[1], int(owner[2])):
            remove(path)


def _clean_once(folder: Path) -> None:
    """Delete what killed processes have left in a folder, when this one first writes there."""
    place = os.path.abspath(folder)
    if place not in _CLEANED:
        _CLEANED.add(place)
        with suppress(OSError):  # a folder that may be written but not listed
            remove_leftovers(folder, own=False)


def _is_used(path: Path, host: str, process: int) -> bool:
    """Whether the process that made a temporary file may still write it."""
    if host != _HOST:
        with suppress(OSError):
            return time.time() - path.stat().st_mtime < _ABANDONED
        return True
    if process == os.getpid():  # of an earlier process of this number
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # of another user
    return True


def _temporary_name(name: str) -> str:
    """A name for a temporary file beside this one; it says whose it is, and is not too long."""
    return f".kutta-{_HOST}-{os.getpid()}-{name[:40]}-{next(_NUMBERS)}.tmp"


def swap(new: Path, old: Path) -> None:
    """Put the folder `new` in the place of the folder `old`, which is removed afterwards.

    Linux exchanges the two in one step. Elsewhere `old` has the name .NAME.PID.old in between.
    """
    if _exchange(new, old):
        discard(new)
        return
    aside = old.with_name(f".{old.name}.{os.getpid()}.old")
    remove(aside)
    os.replace(old, aside)
    try:
        os.replace(new, old)
    except BaseException:
        os.replace(aside, old)
        raise
    remove(aside)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where the system cannot."""
    if sys.platform != "linux":
        return False
    AT_FDCWD, RENAME_EXCHANGE = -100, 2
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # an old C library
        return False
    return rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0


def _replace(temporary: Path, path: Path) -> None:
    """Rename `temporary` to `path`; an existing folder is removed only afterwards."""
    if temporary.is_dir() and path.is_dir():
        swap(temporary, path)
    else:
        os.replace(temporary, path)  # a file does not replace a folder


def _sync(path: Path) -> None:
    """Flush a file, or every file of a directory, to disk before it is renamed."""
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        with open(file, "rb") as handle:
            os.fsync(handle.fileno())
