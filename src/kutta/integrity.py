"""Checksums of the files of a folder: written with them, and checked when they are read.

    checksums.json  {"kutta": "checksums 1",
                     "files": {NAME: {"bytes": 123, "sha256": [one for each MiB of the file]}},
                     "replacing": {NAME: [sums of the contents that are being replaced]},
                     "sha256": of the two entries before}

`write_manifest` is for a folder that is written as a whole, `recorded` for a single file of it.
`verify` checks whole files, `Blocks` the parts of a large file when they are first read. A folder
without a manifest, or a file that is not in it, was written by an earlier version and is not
checked. The sums find damage by disks, copying and accident; who can write a folder can write its
manifest too.
"""

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Self

from kutta.errors import InputError, Unreadable
from kutta.files import atomic_path, is_temporary, remove, write_json, writing
from kutta.parsing import read_json

MANIFEST = "checksums.json"
BLOCK = 1 << 20  # bytes of a file that share a checksum
_FORMAT = "checksums 1"


@dataclass(frozen=True)
class Sums:
    """The size of a file and the SHA-256 of each of its blocks."""

    bytes: int
    sha256: tuple[str, ...]

    @classmethod
    def of(cls, path: Path) -> Self:
        """The sums of a file, read block by block."""
        size, blocks, block = 0, list[str](), memoryview(bytearray(BLOCK))
        with open(path, "rb") as file:
            while count := file.readinto(block):
                size += count
                blocks.append(hashlib.sha256(block[:count]).hexdigest())
        return cls(size, tuple(blocks))


@dataclass(frozen=True)
class Manifest:
    """The sums of files by name; a file that is being replaced may also have its earlier ones."""

    files: Mapping[str, Sums] = field(default_factory=dict[str, Sums])
    replacing: Mapping[str, tuple[Sums, ...]] = field(default_factory=dict[str, tuple[Sums, ...]])

    def accepted(self, name: str) -> tuple[Sums, ...]:
        """The sums that a file may have; none if it is not listed."""
        known = (self.files[name],) if name in self.files else ()
        return known + self.replacing.get(name, ())


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None if it has none."""
    path = folder / MANIFEST
    try:
        values: Any = read_json(path)
        if values["kutta"] != _FORMAT or values["sha256"] != _digest(values):
            raise ValueError("it does not match its own checksum")
        files = {_inside(name): _sums(entry) for name, entry in values["files"].items()}
        before = {
            _inside(name): tuple(map(_sums, entries))
            for name, entries in values["replacing"].items()
        }
        return Manifest(files, before)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        why = error.strerror or error
        raise Unreadable(f"Cannot read {path}: {why}; check its permissions.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged ({error or type(error).__name__}); copy the folder again, or "
            "remove that file to use the others unchecked."
        ) from None


def write_manifest(folder: Path, names: Iterable[str] | None = None) -> None:
    """Write the sums of these files of a folder, or of all files in it and below."""
    if names is None:
        inside = (path for path in folder.rglob("*") if path.is_file())
        found = (path.relative_to(folder) for path in inside if not is_temporary(path.name))
        names = sorted(path.as_posix() for path in found if path.as_posix() != MANIFEST)
    _write(folder, Manifest({name: Sums.of(folder / name) for name in names}))


def verify(folder: Path, names: Iterable[str] | None = None, remedy: str = "") -> bool:
    """Check these files of a folder, or all that are listed; a damaged one is an InputError.

    Returns whether all of them have a checksum.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return False
    wanted = [*manifest.files] if names is None else [*names]
    for name in wanted:
        if manifest.accepted(name) and not _matches(folder / name, manifest.accepted(name)):
            # Another process may have replaced it since the manifest was read.
            manifest = read_manifest(folder) or Manifest()
            accepted = manifest.accepted(name)
            if accepted and not _matches(folder / name, accepted):
                raise damaged(folder / name, remedy)
    return all(name in manifest.files for name in wanted)


def check(path: Path, remedy: str = "") -> None:
    """Check one file against the manifest of its folder, if it is listed there."""
    verify(path.parent, [path.name], remedy)


def damaged(path: Path, remedy: str = "") -> InputError:
    """The error for a file that is not as it was written."""
    missing = "is missing" if not path.exists() else "is damaged: it does not match its checksum"
    remedy = remedy or (
        f"copy it again, or, if it was changed on purpose, remove {path.parent / MANIFEST}"
    )
    return InputError(f"{path} {missing}; {remedy}.")


@contextmanager
def recorded(path: Path, create: bool = False) -> Generator[Path]:
    """Like `atomic_path` for a file, whose sums go into the manifest of its folder.

    If the folder has no manifest, `create` makes one. The manifest first accepts both the new and
    the previous contents, then the file is replaced, then only the new ones are left. So a file
    matches whenever this is interrupted.
    """
    folder, name = path.parent, path.name
    with atomic_path(path) as temporary:
        yield temporary
        known = read_manifest(folder)
        if known is None and not create:
            return
        new, before = Sums.of(temporary), known or Manifest()
        old = before.accepted(name) or ((Sums.of(path),) if path.is_file() else ())
        others = {other: sums for other, sums in before.replacing.items() if other != name}
        after = Manifest(dict(before.files) | {name: new}, others)
        if previous := tuple(one for one in old if one != new):
            _write(folder, replace(after, replacing=others | {name: previous}))
    if previous or after != before:  # a new file is listed only now, because it is here only now
        _write(folder, after)


def drop(folder: Path, names: Iterable[str]) -> None:
    """Delete files or folders inside a folder, and first their entries in its manifest."""
    gone, manifest = [*names], read_manifest(folder)

    def stays(name: str) -> bool:
        return not any(name == one or name.startswith(f"{one}/") for one in gone)

    if manifest is not None and not all(map(stays, manifest.files)):
        kept = {name: sums for name, sums in manifest.files.items() if stays(name)}
        before = {name: sums for name, sums in manifest.replacing.items() if stays(name)}
        _write(folder, Manifest(kept, before))
    with writing(folder):
        for name in gone:
            remove(folder / name)


class Blocks:
    """The blocks of a large file, each checked when a part of it is first read."""

    def __init__(self, path: Path, sums: Sums, remedy: str = "") -> None:
        self._path, self._sums, self._remedy = path, sums, remedy
        self._checked = bytearray(len(sums.sha256))

    @classmethod
    def of(cls, path: Path, size: int, remedy: str = "") -> Self | None:
        """The blocks of a file of this size; None if it has no sums."""
        manifest = read_manifest(path.parent)
        if manifest is None or path.name not in manifest.files:
            return None
        if manifest.files[path.name].bytes != size:
            raise damaged(path, remedy)
        return cls(path, manifest.files[path.name], remedy)

    def check(self, data: memoryview, start: int, stop: int) -> None:
        """Check the blocks that bytes start..stop of the file's `data` are in."""
        for i in range(start // BLOCK, -(-stop // BLOCK)):
            if not self._checked[i]:
                block = data[i * BLOCK : (i + 1) * BLOCK]
                if hashlib.sha256(block).hexdigest() != self._sums.sha256[i]:
                    raise damaged(self._path, self._remedy)
                self._checked[i] = True


def _matches(path: Path, accepted: tuple[Sums, ...]) -> bool:
    """Whether a file has one of these sums; its size is compared before it is read."""
    try:
        if path.stat().st_size not in {sums.bytes for sums in accepted}:
            return False
        return Sums.of(path) in accepted
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        why = error.strerror or error
        raise Unreadable(f"Cannot read {path}: {why}; check its permissions.") from error


def _write(folder: Path, manifest: Manifest) -> None:
    values: dict[str, Any] = {
        "kutta": _FORMAT,
        "files": {name: vars(sums) for name, sums in manifest.files.items()},
        "replacing": {n: [vars(one) for one in sums] for n, sums in manifest.replacing.items()},
    }
    write_json(folder / MANIFEST, values | {"sha256": _digest(values)})


def _digest(values: Mapping[str, Any]) -> str:
    text = json.dumps([values["files"], values["replacing"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _sums(entry: Any) -> Sums:
    sums = Sums(entry["bytes"], tuple(entry["sha256"]))
    if len(sums.sha256) != -(-sums.bytes // BLOCK):
        raise ValueError("the sums of a file do not fit its size")
    return sums


def _inside(name: str) -> str:
    """A name that stays inside the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"it names {name!r}, which is not in the folder")
    return name
