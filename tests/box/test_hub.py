"""Models of the Hugging Face hub, from a hub on loopback that also truncates and stalls."""

import hashlib
import json
import threading
from collections.abc import Iterator
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants, file_download

from kutta import InputError, Translator
from kutta.box import hub as module
from kutta.box.hub import find_model
from kutta.runtime.directory import DECODER, ENCODER, EXPORT
from kutta.runtime.shortlist import SHORTLIST

COMMIT = "c0ffee" + "0" * 34
WEIGHTS = "model.safetensors"


class Hub(ThreadingHTTPServer):
    """Serves the files of a folder as the model me/toy."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        self.fault = ""  # "truncate" or "stall"
        self.faults = 0  # how often
        self.sent: list[str] = []
        self.released = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        files = self.server.files
        if path == "/api/models/me/toy/revision/main":
            names = [{"rfilename": name} for name in files]
            self._json({"id": "me/toy", "sha": COMMIT, "siblings": names})
        elif path == f"/api/models/me/toy/tree/{COMMIT}":
            self._json(
                [
                    {"type": "file", "path": name, "size": len(data), "oid": _sum(data)}
                    for name, data in files.items()
                ]
            )
        elif path.startswith(f"/me/toy/resolve/{COMMIT}/"):
            self._file(path.removeprefix(f"/me/toy/resolve/{COMMIT}/"))
        else:
            self._begin(404, 0, {"X-Error-Code": "RepoNotFound"})

    def _json(self, value: object) -> None:
        data = json.dumps(value).encode()
        self._begin(200, len(data), {"Content-Type": "application/json"})
        self.wfile.write(data)

    def _file(self, name: str) -> None:
        data, server = self.server.files[name], self.server
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        headers = {"ETag": f'"{_sum(data)}"', "X-Repo-Commit": COMMIT}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        rest = data[start:]
        self._begin(206 if start else 200, len(rest), headers)
        if self.command == "HEAD":
            return
        server.sent.append(name)
        if name == WEIGHTS and server.fault and server.faults:
            server.faults -= 1
            self.wfile.write(rest[: len(rest) // 2])
            self.wfile.flush()
            if server.fault == "stall":
                server.released.wait(20)
            self.close_connection = True
            return
        self.wfile.write(rest)

    def _begin(self, code: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


def _sum(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@pytest.fixture
def hub(toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub(toy_run)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.5)
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)  # between attempts
    monkeypatch.chdir(tmp_path)
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()


def test_a_model_is_downloaded_once(hub: Hub, toy_run: Path) -> None:
    translator = Translator.load("me/toy")
    assert translator.translate(["ba be"]) == Translator.load(toy_run).translate(["ba be"])
    assert {"config.json", WEIGHTS} <= set(hub.sent) < set(hub.files)
    assert not [name for name in hub.sent if "/" in name], "no checkpoints, no text"
    hub.sent.clear()
    Translator.load("me/toy")
    assert hub.sent == []
    hub.shutdown()  # without the hub, what was downloaded is used
    hub.server_close()
    Translator.load("me/toy")


def test_all_files_of_an_exported_model_are_downloaded() -> None:
    names = (EXPORT, ENCODER, DECODER, SHORTLIST, WEIGHTS, "checksums.json", "tokenizer.model")
    for name in names:
        assert any(fnmatch(name, pattern) for pattern in module.FILES), name


@pytest.mark.parametrize("fault", ["truncate", "stall"])
def test_an_interrupted_download_goes_on(hub: Hub, toy_run: Path, fault: str) -> None:
    hub.fault, hub.faults = fault, 1
    folder = find_model("me/toy")
    assert hub.sent.count(WEIGHTS) == 2
    assert (folder / WEIGHTS).read_bytes() == (toy_run / WEIGHTS).read_bytes()


@pytest.mark.parametrize("fault", ["truncate", "stall"])
def test_a_hub_that_never_finishes_is_one_sentence(hub: Hub, fault: str) -> None:
    hub.fault, hub.faults = fault, 1000
    with pytest.raises(InputError, match=r"Cannot download me/toy .* run the same command again"):
        Translator.load("me/toy")
    hub.fault = ""
    hub.released.set()
    hub.sent.clear()
    Translator.load("me/toy")
    assert hub.sent == [WEIGHTS], "complete files are kept"


def test_names_that_are_not_on_the_hub(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no public model of that name"):
        Translator.load("me/nothing")
    hub.files.pop("config.json")
    with pytest.raises(InputError, match=r"has no config\.json"):
        Translator.load("me/toy")


def test_paths_are_never_sent(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "me").mkdir()
    monkeypatch.setattr(module, "download", lambda name: pytest.fail(f"asked for {name}"))
    for given in ("me/toy", "runs/mine", "toy", "a/b/c", "../b", "/a/b", "./me/toy", "a/.b"):
        with pytest.raises(InputError, match="There is no folder"):
            find_model(given)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"kutta\[hub\]"):
        find_model("someone/something")
