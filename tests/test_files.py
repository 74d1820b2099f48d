"""Atomic writes: a name holds the old contents or the new ones, never a part of them."""

import errno
import json
import os
import resource
import stat
import subprocess
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from kutta.errors import InputError
from kutta.files import (
    atomic_path,
    followed,
    is_temporary,
    link_or_copy,
    remove,
    remove_leftovers,
    swap,
    write_json,
    write_text,
)


class Crash(BaseException):
    """Something that no handler expects, like Ctrl-C."""


def write_file(path: Path, text: str) -> None:
    path.write_text(text)


def write_folder(path: Path, text: str) -> None:
    (path / "inner").mkdir(parents=True)
    (path / "inner" / "file").write_text(text)


def read(path: Path) -> str:
    return (path / "inner" / "file" if path.is_dir() else path).read_text()


WRITERS = pytest.mark.parametrize("write", [write_file, write_folder])
Write = Callable[[Path, str], None]


@WRITERS
def test_the_final_name_appears_only_at_the_end(tmp_path: Path, write: Write) -> None:
    path = tmp_path / "new" / "folders" / "thing"
    with atomic_path(path) as temporary:
        assert temporary.parent == path.parent, "beside it, so that it is the same file system"
        write(temporary, "all of it")
        assert not path.exists()
    assert read(path) == "all of it"
    assert list(path.parent.iterdir()) == [path]


@WRITERS
def test_what_was_there_is_replaced_as_a_whole(tmp_path: Path, write: Write) -> None:
    path = tmp_path / "thing"
    write(path, "old")
    with atomic_path(path) as temporary:
        write(temporary, "new")
        assert read(path) == "old"
    assert read(path) == "new"
    assert list(tmp_path.iterdir()) == [path]


@WRITERS
@pytest.mark.parametrize("error", [Crash, ValueError, InputError])
def test_a_failing_body_leaves_everything_as_it_was(
    tmp_path: Path, write: Write, error: type[BaseException]
) -> None:
    path = tmp_path / "thing"
    write(path, "old")

    def fail() -> None:
        with atomic_path(path) as temporary:
            write(temporary, "half")
            raise error("told")

    with pytest.raises(error, match="told"):
        fail()
    assert read(path) == "old"
    assert list(tmp_path.iterdir()) == [path]


@WRITERS
def test_a_full_disk_is_told_in_a_sentence(tmp_path: Path, write: Write) -> None:
    path = tmp_path / "thing"
    write(path, "old")

    def fail() -> None:
        with atomic_path(path) as temporary:
            write(temporary, "half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(InputError, match=r"No space left on device; the previous contents are"):
        fail()
    assert read(path) == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_kernel_refusing_to_write_is_told_in_a_sentence(tmp_path: Path) -> None:
    """No simulation: the process may write no file beyond 1000 bytes."""
    path = tmp_path / "thing"
    write_text(path, "old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ExitStack() as undo:
        undo.callback(resource.setrlimit, resource.RLIMIT_FSIZE, before)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(InputError, match=r"Cannot write .*thing: File too large"):
            write_text(path, "x" * 100_000)
    assert read(path) == "old"
    assert list(tmp_path.iterdir()) == [path]


@WRITERS
def test_a_failure_at_the_last_moment_keeps_what_was_there(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "thing"
    write(path, "old")
    replace = os.replace

    def refuse(source: Path, target: Path) -> None:
        if Path(target) == path and read(Path(source)) == "new":
            raise OSError(errno.EIO, "the disk is broken")
        replace(source, target)

    def fail() -> None:
        with atomic_path(path) as temporary:
            write(temporary, "new")

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr("kutta.files._exchange", lambda *_: False)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the disk is broken"):
        fail()
    assert read(path) == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_contents_reach_the_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(file: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{file}")).name
        events.append(f"sync {name}")
        fsync(file)

    def noted_replace(source: Path, target: Path) -> None:
        events.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    with atomic_path(tmp_path / "folder") as temporary:
        temporary.mkdir()
        (temporary / "a").write_text("a")
        (temporary / "b").write_text("b")
    assert {"sync a", "sync b"} <= set(events[: events.index("replace")])


def test_a_parent_that_cannot_be_made_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="Cannot write"):
        write_text(tmp_path / "file" / "thing", "text")
    assert read(tmp_path / "file") == "in the way"


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path: Path) -> None:
    """As for `--output some-folder`."""
    write_folder(tmp_path / "precious", "x")
    with pytest.raises(InputError, match=r"Cannot write .*precious: Is a directory"):
        write_text(tmp_path / "precious", "text")
    assert read(tmp_path / "precious") == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    """As for `--output /dev/stdout` or `--output >(gzip > out.gz)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[str] = []
    # Opened for both directions, so that the reader never waits for a writer that does not come.
    with open(os.open(pipe, os.O_RDWR), "rb", buffering=0) as both:
        reader = threading.Thread(target=lambda: heard.append(both.read(100).decode()), daemon=True)
        reader.start()
        write_text(pipe, "text")
        reader.join(timeout=5)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert heard == ["text"]


def leftover(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary file of a process that was killed in the middle of a write."""
    with monkeypatch.context() as patch:
        patch.setattr("kutta.files.remove", lambda _: None)  # type: ignore[arg-type]
        with ExitStack() as stack:
            temporary = stack.enter_context(atomic_path(folder / "thing"))
            write_folder(temporary, "half")
            stack.pop_all()
    return temporary


def owned_by(path: Path, process: int) -> Path:
    return path.rename(path.with_name(path.name.replace(f"-{os.getpid()}-", f"-{process}-")))


def test_leftovers_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    made = owned_by(leftover(tmp_path, monkeypatch), gone.pid)
    assert is_temporary(made.name)
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_another_process_writes_is_not_a_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = owned_by(leftover(tmp_path, monkeypatch), os.getppid())
    host = here.name.split("-")[1]
    elsewhere = leftover(tmp_path, monkeypatch)
    elsewhere = elsewhere.rename(tmp_path / elsewhere.name.replace(host, "0" * 8))
    remove_leftovers(tmp_path)
    assert set(tmp_path.iterdir()) == {here, elsewhere}
    os.utime(elsewhere, (0, 0))  # of a machine that is no more
    remove_leftovers(tmp_path)
    assert set(tmp_path.iterdir()) == {here}


def test_files_that_only_look_temporary_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = leftover(tmp_path, monkeypatch)
    precious = tmp_path / "elsewhere"
    write_folder(precious, "x")
    own = tmp_path / "own"
    own.mkdir()
    for name in (".mine.tmp", ".mine.123.tmp", ".kutta-mine.tmp", "kutta.tmp"):
        (own / name).write_text("mine")
    (own / made.name).symlink_to(precious)
    (tmp_path / "link").symlink_to(tmp_path)
    remove_leftovers(own)
    remove_leftovers(tmp_path / "link")
    remove_leftovers(tmp_path / "nothing")
    assert len(list(own.iterdir())) == 5
    assert made.exists()
    assert read(precious) == "x"


@pytest.mark.parametrize("at_once", [True, False])
def test_folders_are_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    if not at_once:  # as on systems that cannot exchange two names
        monkeypatch.setattr("kutta.files._exchange", lambda *_: False)  # type: ignore[arg-type]
    write_folder(tmp_path / "old", "old")
    write_folder(tmp_path / "new", "new")
    swap(tmp_path / "new", tmp_path / "old")
    assert read(tmp_path / "old") == "new"
    assert list(tmp_path.iterdir()) == [tmp_path / "old"]


def test_a_long_name_has_a_temporary_file_too(tmp_path: Path) -> None:
    for name in ("x" * 250, "ä" * 120, "\N{GRINNING FACE}" * 60):
        write_text(tmp_path / name, "text")
        assert read(tmp_path / name) == "text"


def test_a_link_is_followed_to_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    (tmp_path / "folder").mkdir()
    for text in ("new", "newer"):  # a link to nothing, then to a file
        write_text(followed(tmp_path / "link"), text)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "folder" / "file").read_text() == text
    assert followed(tmp_path / "folder") == tmp_path / "folder"


def test_json_is_readable_and_keeps_letters(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"word": "Bär", "numbers": [1, 2.5]})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert "Bär" in text
    assert text.endswith("}\n")
    assert json.loads(text) == {"word": "Bär", "numbers": [1, 2.5]}


def test_remove_takes_files_folders_and_nothing(tmp_path: Path) -> None:
    write_folder(tmp_path / "folder", "x")
    write_file(tmp_path / "file", "x")
    for name in ("folder", "file", "nothing"):
        remove(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_remove_takes_a_link_but_not_what_it_points_to(tmp_path: Path) -> None:
    write_folder(tmp_path / "precious", "x")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    remove(tmp_path / "link")
    assert read(tmp_path / "precious") == "x"
    assert not (tmp_path / "link").is_symlink()


def test_a_file_gets_a_second_name_in_place_of_what_was_there(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "deeper" / "target"
    source.write_text("text")
    link_or_copy(source, target)
    assert target.samefile(source)
    other = tmp_path / "other"
    other.write_text("newer text")
    link_or_copy(other, target)
    assert target.read_text() == "newer text"
    assert source.read_text() == "text"


def test_a_file_is_copied_where_the_disk_has_no_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("text")
    link_or_copy(source, target)
    assert target.read_text() == "text"
    assert not target.samefile(source)
