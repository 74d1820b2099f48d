"""The files of examples/deploy: each is checked by the program that it is for, where installed."""

import json
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from typer.main import get_command

from kutta.cli.app import app
from tests.server.conftest import Running, fake_model, running, until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"


def program(name: str) -> str:
    """The path of a program; the test is skipped without it."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    return found or pytest.skip(f"{name} is not installed")


def check_options(words: list[str]) -> None:
    """Options of `kutta serve` that a file uses exist."""
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_unit_is_valid(tmp_path: Path) -> None:
    text = (DEPLOY / "kutta.service").read_text()
    words = next(line for line in text.splitlines() if line.startswith("ExecStart=")).split()
    assert words[1] == "serve"
    check_options(words)
    analyze = program("systemd-analyze")
    unit = tmp_path / "kutta.service"
    unit.write_text(text.replace("/opt/kutta/bin/kutta", sys.executable))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "kutta.service" in line]
    assert said == []


def test_the_container_file_copies_what_is_there() -> None:
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text())
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and line[0] != "#"]
    names = [name for name, _ in steps]
    assert names[0] == "FROM"
    assert names.index("USER") < names.index("ENTRYPOINT"), "it does not run as root"
    for name, rest in steps:
        if name == "COPY":
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
        if name == "RUN":
            assert shlex.split(rest)
    entry = json.loads(dict(steps)["ENTRYPOINT"])
    assert entry[:2] == ["kutta", "serve"]
    check_options(entry)
    health = json.loads(dict(steps)["HEALTHCHECK"].partition("CMD ")[2])
    compile(health[-1], "health", "exec")


@pytest.fixture
def served_once() -> Iterator[Running]:
    with running([fake_model("en", "de")]) as one:
        yield one


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as one:
        return int(one.getsockname()[1])


def test_the_proxy_passes_texts_streams_and_addresses(served_once: Running, tmp_path: Path) -> None:
    nginx, openssl, port = program("nginx"), program("openssl"), free_port()
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, "req", "-x509", *made, *names], check=True, capture_output=True)
    text = (DEPLOY / "nginx.conf").read_text()
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/certs/translate.example.org.pem", str(certificate)),
        ("/etc/ssl/private/translate.example.org.key", str(key)),
        ("http://127.0.0.1:5000", served_once.url),
    ):
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "nginx.conf"
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in kinds)
    top = f"daemon off; master_process off; pid {tmp_path}/pid; error_log stderr;\nevents {{}}\n"
    file.write_text(f"{top}http {{\naccess_log off;\n{places}{text}}}\n")
    command = [nginx, "-p", str(tmp_path), "-c", str(file), "-e", "stderr"]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    proxy = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(
            base_url=f"https://127.0.0.1:{port}", verify=trusted, trust_env=False
        ) as client:
            fields = {"q": "One. Two.", "source": "en", "target": "de"}
            answer = client.post("/translate", json=fields)
            assert answer.json() == {"translatedText": "One.>de Two.>de"}
            assert "event: done" in client.post("/translate/stream", json=fields).text
            assert client.get("/").status_code == 200
            assert client.get("/metrics").status_code == 404
            assert client.post("/translate", content=b"x" * 2_000_000).status_code == 413
    finally:
        proxy.terminate()
        proxy.wait(10)


def test_the_log_has_the_address_that_the_proxy_names(served_once: Running) -> None:
    served_once.client.get("/health", headers={"x-forwarded-for": "192.0.2.7"})
    until(lambda: bool(served_once.lines))
    assert served_once.log()[-1]["client"] == "192.0.2.7"
