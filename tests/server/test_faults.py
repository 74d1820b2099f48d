"""Bad input and bad days: the right status with one sentence, and the server goes on."""

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kutta.server.limits import Limits
from kutta.server.models import load_models
from tests.server.conftest import Running, engine_of, fake_model, running, until

JSON = {"content-type": "application/json"}
GOOD = {"q": "Hi.", "source": "en", "target": "de"}


@pytest.fixture(autouse=True)
def goes_on(served: Running) -> Iterator[None]:
    """After every test the server answers."""
    yield
    assert served.translate("Hi.")["translatedText"] == "Hi.>de"


def one_sentence(answer: httpx.Response, status: int) -> str:
    """The error of an answer in the format of LibreTranslate."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    sentence = answer.json()["error"]
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not readable as JSON"),
        (b"{", "line 1 column 2"),
        (b"[1, 2]", "not an object"),
        (b'"text"', "not an object"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"[" * 100_000, "in each other"),
        (b'{"q":' * 50_000, "in each other"),
        (b"9" * 10_000, "digits"),
        (b"{}", "q is missing"),
    ],
)
def test_bodies_that_are_no_request(served: Running, body: bytes, says: str) -> None:
    answer = served.client.post("/translate", content=body, headers=JSON)
    assert says in one_sentence(answer, 400)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"q": ""}, "q is missing"),
        ({"q": None}, "q is missing"),
        ({"q": 5}, "q is not text"),
        ({"q": {"a": 1}}, "q is not text"),
        ({"q": []}, "list q is empty"),
        ({"q": ["a", 5]}, "item that is not text"),
        ({"q": ["a"] * 257}, "257 texts; send at most 256"),
        ({"q": "x" * 20_001}, "20,001 characters; send at most 20,000"),
        ({"source": None}, "source is missing"),
        ({"target": ""}, "target is missing"),
        ({"source": "tlh"}, "tlh is not supported; choose de, en, fr"),
        ({"target": "x" * 500}, "xxxxxxxxxxxxxxxxxxxx... is not supported"),
        ({"target": ["de"]}, "target is not text"),
        ({"format": "pdf"}, "give text or html"),
        ({"format": 3}, "give text or html"),
        ({"alternatives": -1}, "alternatives is not a number"),
        ({"alternatives": "many"}, "alternatives is not a number"),
        ({"alternatives": 1.5}, "alternatives is not a number"),
        ({"alternatives": True}, "alternatives is not a number"),
    ],
)
def test_fields_that_are_wrong(served: Running, fields: dict[str, Any], says: str) -> None:
    assert says in one_sentence(served.post("/translate", **{**GOOD, **fields}), 400)


def test_lists_and_html_are_not_streamed(served: Running) -> None:
    fields = {**GOOD, "format": "html"}
    assert "send it to /translate" in one_sentence(served.post("/translate/stream", **fields), 400)
    assert "one text" in one_sentence(served.post("/translate/stream", **{**GOOD, "q": ["a"]}), 400)


@pytest.mark.parametrize("text", [" ", "\n\n\t", "...", "\u3000"])
def test_white_space_comes_back_as_it_is(served: Running, text: str) -> None:
    assert served.translate(text)["translatedText"] == text


def test_nul_and_half_surrogates(toy_served: Running) -> None:
    body = (
        b'{"q": ["ba\\u0000be", "ba \\ud800 be", "\\udc00\\ud800"], "source": "xx", "target": "yy"}'
    )
    answer = toy_served.client.post("/translate", content=body, headers=JSON)
    assert answer.status_code == 200
    assert len(answer.json()["translatedText"]) == 3
    stream = b'{"q": "ba \\ud800 \\u0000 be.", "source": "xx", "target": "yy"}'
    answer = toy_served.client.post("/translate/stream", content=stream, headers=JSON)
    assert "event: done" in answer.text


def test_a_megabyte_of_text(served: Running) -> None:
    text = "a" * 1_000_001
    assert "1,000,000 bytes" in one_sentence(served.post("/translate", **{**GOOD, "q": text}), 413)


def test_the_answer_waits_for_a_client_that_is_still_sending(served: Running) -> None:
    """If the server closed the connection before, the client would see no answer."""
    head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += b"Connection: close\r\nContent-Length: "
    with send(served.port, head + b"2000000\r\n\r\n" + b"a" * 1_500_000) as connection:
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        connection.settimeout(10)
        connection.sendall(b"a" * 500_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    with send(served.port, head + b"99999999999\r\n\r\n") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 413 "), "at once, as it is huge"


def test_a_megabyte_in_chunks_of_unknown_length(served: Running) -> None:
    chunks = (b"a" * 10_000 for _ in range(200))
    answer = served.client.post("/translate", content=chunks, headers=JSON)
    one_sentence(answer, 413)


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "", "json", "image/png"])
def test_content_types_that_are_neither_json_nor_a_form(served: Running, kind: str) -> None:
    headers = {"content-type": kind} if kind else {}
    answer = served.client.post("/translate", content=json.dumps(GOOD), headers=headers)
    assert "send application/json" in one_sentence(answer, 415)


def test_forms_that_are_none(served: Running) -> None:
    headers = {"content-type": "multipart/form-data; boundary=x"}
    one_sentence(served.client.post("/translate", content=b"nothing", headers=headers), 400)
    headers = {"content-type": "multipart/form-data"}
    one_sentence(served.client.post("/translate", content=b"--x", headers=headers), 400)
    files = {"q": ("name.txt", b"a file"), "source": (None, "en"), "target": (None, "de")}
    one_sentence(served.client.post("/translate", files=files), 400)
    many = {f"field{n}": "x" for n in range(100)}
    one_sentence(served.client.post("/translate", data=many), 400)


def test_paths_and_methods_that_are_not_there(served: Running) -> None:
    one_sentence(served.client.get("/nothing"), 404)
    one_sentence(served.client.get("/static/../../models.py"), 404)
    one_sentence(served.client.get("/static/%2e%2e/models.py"), 404)
    one_sentence(served.client.get("/translate"), 405)
    one_sentence(served.client.delete("/languages"), 405)


def send(port: int, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(data)
    return connection


def test_bytes_that_are_no_http(served: Running) -> None:
    with send(served.port, b"\x16\x03\x01\x02\x00\x01\x00 not http\r\n\r\n") as connection:
        answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.endswith(b'{"error": "The request is not valid HTTP; correct it."}')


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nHost: x\r\nCookie: "])
def test_headers_without_end(served: Running, start: bytes) -> None:
    with send(served.port, start + b"a" * 70_000) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 431 ")
    with send(served.port, start[:4] + b"/health HTTP/1.1\r\nHost: x\r\n") as connection:
        for _ in range(30):  # a long head is fine if it is not that long
            connection.sendall(b"X-More: " + b"a" * 2_000 + b"\r\n")
        connection.sendall(b"\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_half_a_request_is_given_up() -> None:
    limits = Limits(body_seconds=0.3, idle_seconds=0.3)
    with running([fake_model("en", "de")], limits) as one:
        head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        with send(one.port, head + b'Content-Length: 100\r\n\r\n{"q":') as half_body:
            assert b"408" in half_body.recv(100)
        with send(one.port, head[:30]) as half_head:
            assert half_head.recv(100) == b"", "closed without an answer"
        assert one.translate("Hi.")


def test_a_client_that_goes_in_the_middle_of_its_body(served: Running) -> None:
    head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    send(served.port, head + b"Content-Length: 100\r\n\r\n{").close()
    until(lambda: served.log()[-1]["status"] == 499)


def test_idle_connections_do_not_block_and_are_closed() -> None:
    limits = Limits(idle_seconds=1.0, connections=150)
    with running([fake_model("en", "de")], limits) as one:
        idle = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(400)]
        assert one.translate("Hi.")["translatedText"] == "Hi.>de"
        until(lambda: len(one.server.server_state.connections) <= 2, 10)
        for connection in idle:
            connection.close()


def test_a_client_that_reads_slowly_does_not_block_others() -> None:
    with running([fake_model("en", "de")]) as one:
        text = "A sentence. " * 100  # on a busy core more would be refused, rightly
        body = json.dumps({**GOOD, "q": text, "alternatives": 5}).encode()
        head = (
            "POST /translate/stream HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        slow = [send(one.port, head.encode() + body) for _ in range(10)]
        started = time.perf_counter()
        one.translate("Hi.")
        assert time.perf_counter() - started < 5
        for connection in slow:
            connection.close()


def test_overload_is_refused_at_once_and_passes() -> None:
    model = fake_model("en", "de")
    engine = engine_of(model)
    engine.gate.clear()
    with running([model], Limits(waiting=100)) as one:

        def ask() -> None:
            httpx.post(f"{one.url}/translate", json=GOOD, timeout=20, trust_env=False)

        def fill() -> None:
            httpx.post(
                f"{one.url}/translate", json={**GOOD, "q": "x" * 99}, timeout=20, trust_env=False
            )

        threads = [threading.Thread(target=ask), threading.Thread(target=fill)]
        threads[0].start()
        until(lambda: len(engine.calls) == 1)
        threads[1].start()
        until(lambda: one.service.models.served[0].batcher.waiting == 99)
        started = time.perf_counter()
        refused = one.post("/translate", **GOOD)
        assert time.perf_counter() - started < 1
        assert "busy" in one_sentence(refused, 429)
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        stream = one.post("/translate/stream", **GOOD)
        assert "busy" in one_sentence(stream, 429), "known before the stream begins"
        engine.gate.set()
        for thread in threads:
            thread.join()
        assert one.translate("Hi.")


@pytest.mark.parametrize("path", ["/translate", "/translate/stream"])
def test_the_time_of_a_request_is_limited(path: str) -> None:
    model = fake_model("en", "de", seconds=0.4)
    with running([model], Limits(seconds=0.2)) as one:
        text = " ".join(f"Sentence {n}." for n in range(200))
        answer = one.post(path, **{**GOOD, "q": text})
        if path == "/translate":
            assert "longer than 0.2 s" in one_sentence(answer, 503)
            assert "retry-after" in answer.headers
        else:
            assert "event: error" in answer.text
        until(lambda: one.service.models.served[0].batcher.waiting == 0)
        assert len(engine_of(model).calls) <= 4, "the rest of 200 sentences was dropped"


@pytest.mark.parametrize("path", ["/translate", "/translate/stream"])
def test_the_work_of_a_client_that_has_gone_is_dropped(path: str) -> None:
    model = fake_model("en", "de")
    engine = engine_of(model)
    engine.gate.clear()
    with running([model]) as one:
        body = json.dumps({**GOOD, "q": " ".join(f"Sentence {n}." for n in range(500))}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        connection = send(one.port, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        until(lambda: len(engine.calls) == 1)
        assert one.service.models.served[0].batcher.waiting > 1000
        connection.close()
        until(lambda: one.service.models.served[0].batcher.waiting == 0)
        engine.gate.set()
        assert one.translate("Hi.")
    assert len(engine.calls) == 2


def test_a_fault_of_a_model_is_an_answer_and_not_the_end() -> None:
    model = fake_model("en", "de")
    engine = engine_of(model)
    with running([model]) as one:
        engine.error = RuntimeError("a secret detail of the text")
        refused = one.post("/translate", **GOOD)
        assert "secret" not in one_sentence(refused, 500)
        stream = one.post("/translate/stream", **GOOD)
        assert "event: error" in stream.text
        assert "secret" not in stream.text + "".join(one.lines)
        assert one.log()[0]["fault"].startswith("RuntimeError at ")
        engine.error = None
        assert one.translate("Hi.")["translatedText"] == "Hi.>de"


def test_a_model_directory_that_vanishes(toy_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(toy_run, folder)
    fields = {"q": "ba be bi", "source": "xx", "target": "yy"}
    with running(load_models([str(folder)], "cpu")) as one:
        before = one.post("/translate", **fields).json()
        shutil.rmtree(folder)
        assert one.post("/translate", **fields).json() == before
        refused = one.post("/inside/states", **fields)
        assert "no folder" in one_sentence(refused, 503)


def test_stopping_finishes_what_was_begun() -> None:
    model = fake_model("en", "de", seconds=0.5)
    found: list[Any] = []
    with running([model]) as one:

        def ask() -> None:
            answer = httpx.post(f"{one.url}/translate", json=GOOD, timeout=20, trust_env=False)
            found.append(answer.json())

        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: len(engine_of(model).calls) == 1)
    thread.join()
    assert found == [{"translatedText": "Hi.>de"}]
