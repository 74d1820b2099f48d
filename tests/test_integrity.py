"""Checksums: every changed bit is found and its file named, and no interruption invents damage."""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta import integrity
from kutta.errors import InputError
from kutta.integrity import (
    BLOCK,
    MANIFEST,
    Blocks,
    Sums,
    check,
    drop,
    read_manifest,
    recorded,
    verify,
    write_manifest,
)


def fill(folder: Path) -> Path:
    (folder / "below").mkdir(parents=True)
    (folder / "small").write_bytes(b"abc")
    (folder / "empty").write_bytes(b"")
    (folder / "below" / "large").write_bytes(os.urandom(2 * BLOCK + 5))
    write_manifest(folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def rewrite(path: Path, content: bytes) -> None:
    with recorded(path, create=True) as temporary:
        temporary.write_bytes(content)


def test_sums_are_the_usual_ones(folder: Path) -> None:
    """Of a file below a MiB, what `sha256sum` prints."""
    entry = json.loads((folder / MANIFEST).read_text())["files"]["small"]
    assert entry == {"bytes": 3, "sha256": [hashlib.sha256(b"abc").hexdigest()]}
    assert len(Sums.of(folder / "below" / "large").sha256) == 3


def test_all_files_are_listed_and_intact(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert manifest is not None
    assert [*manifest.files] == ["below/large", "empty", "small"]
    assert verify(folder)
    assert verify(folder, ["small"])


@given(data=st.data())
@settings(max_examples=50)
def test_a_flipped_bit_is_found_and_its_file_named(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = fill(tmp_path_factory.mktemp("flip") / "folder")
    path = folder / data.draw(st.sampled_from(["small", "below/large"]))
    flip(path, data.draw(st.integers(0, 8 * path.stat().st_size - 1)))
    with pytest.raises(InputError, match=f"{path} is damaged: it does not match its checksum"):
        verify(folder)


def test_every_flipped_bit_of_the_manifest_is_found_or_changes_nothing(folder: Path) -> None:
    path, manifest = folder / MANIFEST, read_manifest(folder)
    harmless = 0
    for bit in range(0, 8 * path.stat().st_size, 19):
        flip(path, bit)
        try:
            assert read_manifest(folder) == manifest
            harmless += 1  # another kind of space
        except InputError as error:
            told = str(error)
            assert told.startswith(f"{path} is damaged"), told
        flip(path, bit)
    assert harmless < 20


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"abcd"),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["longer", "empty", "missing", "folder"],
)
def test_other_changes_are_found(folder: Path, change: Callable[[Path], object]) -> None:
    change(folder / "small")
    with pytest.raises(InputError, match="small"):
        verify(folder)
    with pytest.raises(InputError, match=r"small .*; do this\."):
        check(folder / "small", "do this")
    assert verify(folder, ["empty"])


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", "[" * 100_000, '{"kutta": "checksums 1"}', '{"kutta": 1e999}'],
)
def test_a_broken_manifest_is_named(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_text(text)
    with pytest.raises(InputError, match=rf"{MANIFEST} is damaged"):
        verify(folder)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/../../b", ""])
def test_a_manifest_leads_nowhere_else(folder: Path, name: str) -> None:
    values = json.loads((folder / MANIFEST).read_text())
    values["files"] = {name: values["files"]["small"]}
    values["sha256"] = integrity._digest(values)  # pyright: ignore[reportPrivateUsage]
    (folder / MANIFEST).write_text(json.dumps(values))
    with pytest.raises(InputError, match="is not in the folder"):
        verify(folder)


def test_a_folder_of_an_earlier_version_is_not_checked(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert not verify(tmp_path)
    assert not verify(tmp_path / "nothing")
    check(tmp_path / "file")
    assert Blocks.of(tmp_path / "file", 1) is None
    rewrite(tmp_path / "other", b"y")
    assert verify(tmp_path)
    assert not verify(tmp_path, ["file", "other"])


def test_a_recorded_file_is_checked_and_the_others_stay(folder: Path) -> None:
    rewrite(folder / "small", b"new")
    rewrite(folder / "another", b"one")
    assert verify(folder, ["small", "another", "below/large"])
    manifest = read_manifest(folder)
    assert manifest is not None
    assert not manifest.replacing
    flip(folder / "another", 3)
    with pytest.raises(InputError, match="another is damaged"):
        verify(folder)


class Killed(BaseException):
    """As if the process ended here."""


@pytest.mark.parametrize("kind", ["listed", "of an earlier version", "new"])
def test_an_interrupted_replacement_is_no_damage(tmp_path: Path, kind: str) -> None:
    """Stopped before each of its file operations: the old contents or the new ones, and intact."""
    seen, operations = set[bytes](), 0
    active, left = False, 0

    def stop(event: str, _: object) -> None:
        nonlocal left
        if active and event in ("open", "os.rename", "os.remove", "os.rmdir"):
            left -= 1
            if left < 0:
                raise Killed

    sys.addaudithook(stop)
    for operations in range(100):
        folder = tmp_path / str(operations)
        folder.mkdir()
        if kind != "new":
            (folder / "file").write_bytes(b"old")
        if kind == "listed":
            write_manifest(folder)
        left, active = operations, True
        try:
            rewrite(folder / "file", b"new")
            done = True
        except Killed:
            done = False
        finally:
            active = False
        verify(folder)
        seen.add((folder / "file").read_bytes() if (folder / "file").exists() else b"old")
        rewrite(folder / "file", b"newer")
        assert verify(folder, ["file"])
        if done:
            break
    assert seen == {b"old", b"new"}
    assert operations > 5


def test_files_are_dropped_with_their_sums(folder: Path) -> None:
    drop(folder, ["below", "nothing"])
    assert not (folder / "below").exists()
    assert verify(folder, ["small", "empty"])
    assert verify(folder)


def test_blocks_are_checked_when_they_are_read(folder: Path) -> None:
    folder = folder / "below"
    write_manifest(folder)
    path = folder / "large"
    flip(path, 8 * (BLOCK + 7))
    data = memoryview(path.read_bytes())
    blocks = Blocks.of(path, len(data))
    assert blocks is not None
    blocks.check(data, 0, BLOCK)
    blocks.check(data, 2 * BLOCK, len(data))
    blocks.check(data, 5, 5)
    for start, stop in ((BLOCK - 1, BLOCK + 1), (BLOCK, BLOCK + 1), (0, len(data))):
        with pytest.raises(InputError, match="large is damaged"):
            blocks.check(data, start, stop)
    with pytest.raises(InputError, match="large is damaged"):
        Blocks.of(path, len(data) - 1)


def test_a_file_replaced_meanwhile_by_another_process_is_not_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = integrity.read_manifest

    def slow(place: Path) -> object:
        found = read(place)
        monkeypatch.setattr(integrity, "read_manifest", read)
        rewrite(folder / "small", b"newer")
        return found

    monkeypatch.setattr(integrity, "read_manifest", slow)
    assert verify(folder, ["small"])
