"""`kutta serve` as a process: starting, warning, refusing, logging and stopping."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from kutta import InputError, box
from kutta.server.keys import Keys
from kutta.server.models import load_models
from kutta.server.run import Request, _listen, _warn_of_network, serve

KUTTA = [sys.executable, "-m", "kutta", "serve"]


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the address that it prints when it serves."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*KUTTA, *arguments, "--port", "0"], **pipes) as one:  # type: ignore[call-overload]
        try:
            assert one.stderr
            said = next(line for line in one.stderr if "http" in line)
            found = re.search(r"http://\S+", said)
            assert found, said
            yield one, found[0]
        finally:
            one.kill()


def test_it_serves_logs_and_finishes_what_was_begun(toy_run: Path) -> None:
    with process(str(toy_run)) as (one, url):
        assert url.startswith("http://127.0.0.1:"), "loopback, unless told otherwise"
        found: list[httpx.Response] = []

        def ask() -> None:
            text = " ".join(f"Ba be {n} bi." for n in range(300))
            fields = {"q": text, "source": "xx", "target": "yy"}
            found.append(httpx.post(f"{url}/translate", json=fields, timeout=30, trust_env=False))

        thread = threading.Thread(target=ask)
        thread.start()
        waiting = re.compile(r'kutta_batch_sentences_count\{pair="xx-yy"\} [1-9]')
        while not waiting.search(httpx.get(f"{url}/metrics", trust_env=False).text):
            assert thread.is_alive()
        one.send_signal(signal.SIGTERM)
        thread.join(30)
        assert found[0].status_code == 200
        assert len(found[0].json()["translatedText"].split(" ")) >= 300
        log, _ = one.communicate(timeout=30)
        assert one.returncode == 0
    entries = [json.loads(line) for line in log.splitlines()]
    assert entries[-1]["path"] == "/translate"
    assert entries[-1]["sentences"] == 300
    assert "Ba be" not in log


def test_an_empty_box_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kutta.server.models.boxed_models", dict)
    with pytest.raises(InputError, match=r"no models in the box; give a run directory.*kutta demo"):
        load_models([])


def test_without_arguments_it_serves_the_box(
    toy_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kutta.server.models.boxed_models", lambda: {"xx-yy": toy_run})
    monkeypatch.setattr(box, "models", lambda: {"xx-yy": toy_run})
    (model,) = load_models([], "cpu")
    assert (model.source, model.target) == ("xx", "yy")


def test_models_that_cannot_be_served(toy_run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no folder"):
        load_models(["nowhere"])
    with pytest.raises(InputError, match="both translate xx to yy; give one of them"):
        load_models([str(toy_run), str(toy_run)], "cpu")
    with pytest.raises(InputError, match=r"no config\.json"):
        load_models([str(tmp_path)])
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"does not name two languages"):
        load_models([str(tmp_path)])


def test_a_port_that_is_taken_is_said_before_the_models_load() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"Cannot listen on 127.0.0.1 port {port}"):
            serve(Request(models=["nowhere"], port=port))
    for host, port in (("no.such.host.invalid", 0), ("127.0.0.1", 70_000)):
        with pytest.raises(InputError, match="Cannot listen"):
            _listen(host, port)


def test_key_files(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    with pytest.raises(InputError, match="Cannot read the API keys"):
        Keys.read(file)
    file.write_text("# none\n\n")
    with pytest.raises(InputError, match="has no API keys"):
        Keys.read(file)
    file.write_text("# ours\n one \ntwo\n")
    assert Keys.read(file).required


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_needs_no_warning(host: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _warn_of_network(host, Keys())


def test_another_address_gets_a_warning() -> None:
    with pytest.warns(
        UserWarning, match=r"0\.0\.0\.0 lets other machines connect without API keys"
    ):
        _warn_of_network("0.0.0.0", Keys())
    with pytest.warns(UserWarning, match="connect; traffic is not encrypted"):
        _warn_of_network("0.0.0.0", Keys(["key"]))


def test_the_server_imports_no_torch() -> None:
    code = (
        "import sys, kutta.server.run, kutta.cli; "
        "sys.exit([name for name in ('torch', 'kutta.translate') if name in sys.modules] != [])"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from kutta.cli.serve import serve as command

    for name in [name for name in sys.modules if name.startswith("kutta.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InputError, match=r"needs uvicorn.*pip install 'kutta\[serve\]'"):
        command()


@pytest.mark.parametrize("option", ["char_limit", "batch_limit", "timeout"])
def test_limits_are_numbers_above_0(option: str) -> None:
    from kutta.cli.serve import serve as command

    with pytest.raises(InputError, match="must be more than 0"):
        command(**{option: 0})
