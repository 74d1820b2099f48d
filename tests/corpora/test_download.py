"""Downloads against a server that truncates, stalls, lies and forgets."""

import errno
import fcntl
import gzip
import hashlib
import io
import json
import random
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.progress import Progress

from kutta import files
from kutta.corpora import download
from kutta.corpora.download import Patience, Resume
from kutta.corpora.fetch import fetch, record, recorded
from kutta.corpora.sources import Source
from kutta.errors import InputError

CONTENT = random.Random(1).randbytes(100_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HASTY = Patience(attempts=3, wait=0, silence=0.2)
QUICK = Patience(attempts=3, wait=0, silence=5)


def get(server: Any, folder: Path, checksum: str = "", patience: Patience = QUICK) -> Path:
    source = Source(f"{server.url}/a.bin", checksum)
    return fetch("a.bin", source, folder, None, patience, Progress(disable=True))


def plan(server: Any, *plans: dict[str, Any]) -> None:
    """Answer the next requests for the file like this, and the following ones properly."""
    make = type(server.usual)
    server.files["/a.bin"] = CONTENT
    server.plans["/a.bin"] = [make(**each) for each in plans]


def always(server: Any, **how: Any) -> None:
    plan(server)
    server.usual = type(server.usual)(**how)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_once(server: Any, tmp_path: Path) -> None:
    plan(server)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["a.bin"]
    get(server, tmp_path)
    assert len(server.seen) == 1


def test_a_truncated_transfer_is_continued(server: Any, tmp_path: Path) -> None:
    plan(server, {"cut": 30_000}, {"cut": 20_000})
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert [request.range for request in server.seen] == ["", "bytes=30000-", "bytes=50000-"]
    assert server.sent() == len(CONTENT), "only the missing bytes are sent"


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, 60_000), max_size=6))
def test_any_number_of_cuts_is_survived_as_long_as_bytes_arrive(
    server: Any, tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    server.seen.clear()
    plan(server, *({"cut": cut} for cut in cuts))
    assert get(server, tmp_path_factory.mktemp("cuts")).read_bytes() == CONTENT
    assert server.sent() == len(CONTENT)


def test_without_ranges_a_cut_transfer_starts_over(server: Any, tmp_path: Path) -> None:
    always(server, ranges=False)
    server.plans["/a.bin"] = [type(server.usual)(cut=30_000, ranges=False)]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.sent() == 30_000 + len(CONTENT)


def test_without_ranges_a_server_that_always_cuts_is_given_up(server: Any, tmp_path: Path) -> None:
    always(server, ranges=False, cut=30_000)
    with pytest.raises(InputError, match=r"a\.bin from http.*the connection broke.*30,000 bytes"):
        get(server, tmp_path)
    assert len(server.seen) == QUICK.attempts
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[:30_000]
    server.usual = type(server.usual)(ranges=False)
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_stall_is_noticed_and_continued(server: Any, tmp_path: Path) -> None:
    plan(server, {"stall": 40_000})
    assert get(server, tmp_path, patience=HASTY).read_bytes() == CONTENT
    assert server.sent() == len(CONTENT)


def test_a_server_that_stays_silent_is_given_up_and_the_part_kept(
    server: Any, tmp_path: Path
) -> None:
    always(server, stall=0)
    server.plans["/a.bin"] = [type(server.usual)(stall=40_000)]
    with pytest.raises(
        InputError, match=r"timed out after 0\.2 seconds; run the same command to resume"
    ):
        get(server, tmp_path, patience=HASTY)
    server.usual = type(server.usual)()
    before = server.sent()
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.sent() - before == len(CONTENT) - 40_000
    assert names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_passing_fault_of_the_server_is_waited_for(
    server: Any, tmp_path: Path, status: int
) -> None:
    plan(server, {"status": status}, {"status": status})
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_lasting_fault_of_the_server_is_told(server: Any, tmp_path: Path) -> None:
    always(server, status=500)
    with pytest.raises(InputError, match=r"answered 500 Internal Server Error; run the same"):
        get(server, tmp_path)
    assert len(server.seen) == QUICK.attempts


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_file_that_is_gone_is_not_asked_for_again(
    server: Any, tmp_path: Path, status: int
) -> None:
    plan(server, {"status": status})
    with pytest.raises(InputError, match=rf"answered {status} .*new address.*--from DIR"):
        get(server, tmp_path)
    assert len(server.seen) == 1
    assert names(tmp_path) == []


def test_a_refused_connection_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: every connection is refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/a.bin"
        with pytest.raises(InputError, match=rf"a\.bin from {url}: there is no connection"):
            fetch("a.bin", Source(url), tmp_path, None, QUICK, Progress(disable=True))


def test_a_redirect_is_followed_also_when_continuing(server: Any, tmp_path: Path) -> None:
    plan(server, {"cut": 30_000})
    server.plans["/old.bin"] = [
        type(server.usual)(status=302, headers={"Location": "/a.bin"}) for _ in range(2)
    ]
    source = Source(f"{server.url}/old.bin")
    path = fetch("a.bin", source, tmp_path, None, QUICK, Progress(disable=True))
    assert path.read_bytes() == CONTENT
    assert server.sent() == len(CONTENT)


def test_a_server_that_ignores_range_sends_everything(server: Any, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:30_000])
    always(server, ranges=False)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert [(r.range, r.status) for r in server.seen] == [("bytes=30000-", 200)]


@pytest.mark.parametrize("etag", ['"2"', ""], ids=["by its ETag", "by its length"])
def test_a_file_that_changed_in_between_is_not_mixed(
    server: Any, tmp_path: Path, etag: str
) -> None:
    server.etag = '"1"' if etag else ""
    always(server, status=404)
    server.plans["/a.bin"] = [type(server.usual)(cut=30_000)]
    with pytest.raises(InputError):
        get(server, tmp_path)
    server.etag, server.usual = etag, type(server.usual)()
    newer = CONTENT[::-1] if etag else CONTENT[::-1] + b"longer"
    server.files["/a.bin"] = newer
    assert get(server, tmp_path).read_bytes() == newer


@pytest.mark.parametrize(
    ("etag", "date", "asked"),
    [
        ('"1"', "Mon, 01 Jan 2024 00:00:00 GMT", '"1"'),
        ("", "Mon, 01 Jan 2024 00:00:00 GMT", "Mon, 01 Jan 2024 00:00:00 GMT"),
        ('W/"1"', "", ""),  # a weak ETag promises nothing
        ("", "", ""),
    ],
)
def test_the_rest_is_asked_for_only_if_the_file_is_the_same(
    server: Any, tmp_path: Path, etag: str, date: str, asked: str
) -> None:
    server.etag = etag
    plan(server, {"cut": 30_000, "headers": {"Last-Modified": date} if date else {}})
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert [request.if_range for request in server.seen] == ["", asked]


def test_a_partial_answer_that_does_not_say_which_part_is_not_used(
    server: Any, tmp_path: Path
) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:30_000])
    plan(server, {"headers": {"Content-Range": "bytes"}})
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_complete_part_needs_no_bytes(server: Any, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    plan(server)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert [request.status for request in server.seen] == [416]


def test_a_part_longer_than_the_file_starts_over(server: Any, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT + b"more")
    plan(server)
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_without_a_length_the_end_of_the_connection_is_the_end(server: Any, tmp_path: Path) -> None:
    plan(server, {"length": False})
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_bytes_arrive_as_they_are_stored(server: Any, tmp_path: Path) -> None:
    """Old servers call a .tgz encoded; unpacking it on the way would break it."""
    always(server, headers={"Content-Encoding": "x-gzip"})
    server.files["/a.bin"] = gzip.compress(CONTENT)
    assert get(server, tmp_path).read_bytes() == server.files["/a.bin"]


def test_a_server_that_sends_less_than_asked_is_asked_again(server: Any, tmp_path: Path) -> None:
    plan(server, {"cut": 30_000}, {"piece": 20_000})
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.seen[-1].range == "bytes=50000-"


def test_a_full_disk_is_told_and_what_came_is_kept(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk(io.FileIO):
        def write(self, data: Any) -> int:
            super().write(data[:3_000])
            raise OSError(errno.ENOSPC, "No space left on device")

    plan(server)
    with monkeypatch.context() as patch:
        patch.setattr(download, "open", FullDisk, raising=False)
        with pytest.raises(InputError, match=r"No space left on device; free some disk space"):
            get(server, tmp_path)
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[:3_000]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.seen[-1].range == "bytes=3000-"


def test_an_interrupt_leaves_the_part(server: Any, tmp_path: Path) -> None:
    def interrupt(have: int, total: int | None) -> None:
        assert total == len(CONTENT)
        raise KeyboardInterrupt

    plan(server, {"stall": 30_000})
    resume = Resume(tmp_path / "a.bin.part", QUICK, interrupt)
    with pytest.raises(KeyboardInterrupt):
        resume(f"{server.url}/a.bin", tmp_path / "out", None)
    kept = (tmp_path / "a.bin.part").read_bytes()
    assert kept
    assert kept == CONTENT[: len(kept)]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.seen[-1].range == f"bytes={len(kept)}-"


def test_a_system_without_locks_downloads_without(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "fcntl", None)
    plan(server)
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_two_processes_do_not_share_a_part(server: Any, tmp_path: Path) -> None:
    plan(server)
    with open(tmp_path / "a.bin.part", "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="Another process is downloading"):
            get(server, tmp_path)
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written_is_told(server: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"Cannot write downloads to .*choose another --dir"):
        get(server, tmp_path / "file")


# Checksums


@pytest.mark.parametrize(
    "checksum", [f"sha256:{SHA256}", f"md5:{hashlib.md5(CONTENT).hexdigest()}"]
)
def test_a_published_checksum_is_checked(server: Any, tmp_path: Path, checksum: str) -> None:
    plan(server)
    assert get(server, tmp_path, checksum).read_bytes() == CONTENT


def test_another_file_is_refused_and_can_be_accepted(server: Any, tmp_path: Path) -> None:
    plan(server)
    with pytest.raises(InputError, match=rf'a\.bin\.part .*put "a\.bin": "{SHA256}" into') as error:
        get(server, tmp_path, "sha256:" + "0" * 64)
    assert "0" * 64 in str(error.value)
    assert not (tmp_path / "a.bin").exists()
    (tmp_path / "checksums.json").write_text(json.dumps({"a.bin": SHA256}))
    assert get(server, tmp_path, "sha256:" + "0" * 64).read_bytes() == CONTENT
    assert len(server.seen) == 1, "what was downloaded and refused served in the end"


def test_the_first_checksum_is_kept_to(server: Any, tmp_path: Path) -> None:
    plan(server)
    path = get(server, tmp_path)
    assert record(tmp_path, {"a.bin": path}) == {"a.bin": SHA256}
    assert json.loads((tmp_path / "checksums.json").read_text()) == {"a.bin": SHA256}
    path.unlink()
    server.files["/a.bin"] = b"another version"
    with pytest.raises(InputError, match=rf"not {SHA256}"):
        get(server, tmp_path)
    assert recorded(tmp_path) == {"a.bin": SHA256}


def test_a_download_that_rotted_is_fetched_again(server: Any, tmp_path: Path) -> None:
    plan(server)
    record(tmp_path, {"a.bin": get(server, tmp_path)})
    (tmp_path / "a.bin").write_bytes(b"rot")
    assert get(server, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_a_damaged_record_is_told(server: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "checksums.json").write_text(text)
    with pytest.raises(InputError, match=r"checksums\.json is damaged"):
        get(server, tmp_path)


@pytest.mark.parametrize("name", ["ours.bin", "a.bin"], ids=["our name", "the published name"])
def test_a_file_got_by_hand_is_used_where_it_is(server: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "by-hand").mkdir()
    (tmp_path / "by-hand" / name).write_bytes(CONTENT)
    source = Source(f"{server.url}/a.bin?raw=1", f"sha256:{SHA256}")
    bar = Progress(disable=True)
    found = fetch("ours.bin", source, tmp_path, tmp_path / "by-hand", QUICK, bar)
    assert found == tmp_path / "by-hand" / name
    assert server.seen == []
    found.write_bytes(b"wrong")
    with pytest.raises(
        InputError, match=r"has the wrong checksum.*save the right file as ours\.bin"
    ):
        fetch("ours.bin", source, tmp_path, tmp_path / "by-hand", QUICK, bar)
    assert found.read_bytes() == b"wrong", "the user's file is the user's"
