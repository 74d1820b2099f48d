"""Run directories that somebody made to do harm: they are data, whatever a command does with them.

Beside the run is a secret, which no command may open or change.
"""

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kutta.integrity import MANIFEST
from tests.test_cli import Answer, is_one_sentence, kutta

SECRET = "ba be\nbi bo\n"
opened: list[str] | None = None  # the files that are opened, while a test wants to know


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if opened is not None and event in ("open", "os.rename", "os.remove", "os.link"):
        opened.extend(os.fsdecode(one) for one in arguments if isinstance(one, str | bytes))


sys.addaudithook(_watch)  # a hook cannot be removed again


@pytest.fixture
def run(tmp_path: Path, toy_run: Path) -> Iterator[Path]:
    """A copy of a good run; afterwards the secret is checked."""
    global opened
    folder = tmp_path / "downloads" / "run"
    shutil.copytree(toy_run, folder)
    for manifest in folder.rglob(MANIFEST):  # who writes a folder writes its checksums too
        manifest.unlink()
    for name in ("secret", "secret.xx", "secret.yy", "secret.toml", "run.yy"):
        (tmp_path / name).write_text(SECRET)
    (tmp_path / "elsewhere").mkdir()
    opened = []
    yield folder
    touched, opened = opened, None
    assert [name for name in touched if Path(name).name.startswith("secret")] == []
    left = {file.name: file.read_text() for file in tmp_path.iterdir() if file.is_file()}
    assert left == dict.fromkeys(
        ("secret", "secret.xx", "secret.yy", "secret.toml", "run.yy"), SECRET
    )
    assert list((tmp_path / "elsewhere").iterdir()) == []


def edit(run: Path, sections: dict[str, Any]) -> None:
    values = json.loads((run / "config.json").read_text())
    for name, change in sections.items():
        values[name] = values[name] | change if isinstance(change, dict) else change
    (run / "config.json").write_text(json.dumps(values))
    (run / "checksums.json").unlink(missing_ok=True)  # whoever changes files can leave it out


def every_command(run: Path) -> list[Answer]:
    return [
        kutta("translate", run, stdin=b"ba be\n"),
        kutta("evaluate", run),
        kutta("info", run),
        kutta("info", run, "--resolved"),
        kutta("score", run / "text" / "test" / "test.target", "--run", run),
    ]


def is_fine(answer: Answer) -> None:
    """It has worked, or said why not."""
    if answer.code != 0:
        is_one_sentence(answer)


def link(run: Path, name: str, target: str) -> None:
    path = run / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


# ---- settings that name other files -----------------------------------------------------------

ELSEWHERE = {
    "a target language that is a path": {"data": {"target": "/../../../run.yy"}},
    "a source language that is a path": {"data": {"source": "/../../../secret"}},
    "a test set beside the run": {"data": {"test": ["../../secret"]}},
    "a test set of another folder": {"data": {"test": ["secret"], "dir": "../.."}},
    "raw references beside the run": {
        "data": {
            "tokenizer": "split",
            "test": ["test"],
            "dir": "..",
            "raw_references": {"test": "../secret"},
        }
    },
    "another config to extend": {"extends": "../../secret"},
    "another run": {"run": "../../elsewhere"},
    "another run to grow from": {"train": {"grow_from": "../../elsewhere"}},
}


@pytest.mark.parametrize("change", ELSEWHERE.values(), ids=ELSEWHERE)
def test_settings_lead_nowhere_else(
    run: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(run, change)
    monkeypatch.chdir(run)
    for answer in every_command(run):
        is_fine(answer)


def test_names_of_test_sets_stay_in_the_folder_that_the_user_names(run: Path) -> None:
    edit(run, {"data": {"test": ["../../secret"]}})
    inner = run.parent / "text"
    inner.mkdir()
    is_one_sentence(kutta("evaluate", run, "--data-dir", inner), "'../../secret' is not in")


def test_a_test_set_that_is_not_in_the_run_needs_a_folder(run: Path, toy_run: Path) -> None:
    text = toy_run.parent / "text"
    shutil.rmtree(run / "text")
    is_one_sentence(kutta("evaluate", run), "--data-dir", str(text))
    answer = kutta("evaluate", run, "--data-dir", text)
    assert answer.code == 0, answer.err
    assert (run / "hypotheses" / "test.yy").is_file()


# ---- links, pipes, sockets ----------------------------------------------------------------------

LINKS = {
    "config.json": "../../secret",
    "model.safetensors": "../../secret",
    "tokenizer.model": "../../secret",
    "metrics.jsonl": "../../secret",
    "text": "../../elsewhere",
    "text/test/test.source": "../../../../secret",
    "hypotheses": "../../elsewhere",
    "checkpoints": "../../elsewhere",
    "checkpoints/step-00000099": "../../../elsewhere",
    "store": "/",
    "nowhere": "/proc/self/root/nowhere",
}


@pytest.mark.parametrize("name", LINKS)
def test_a_link_that_leads_out_of_the_run_is_refused(run: Path, name: str) -> None:
    link(run, name, LINKS[name])
    for answer in every_command(run):
        is_one_sentence(answer, str(run / name), "is a link to")


def test_links_inside_the_run_and_to_the_run_are_followed(run: Path) -> None:
    last = sorted((run / "checkpoints").iterdir())[-1].name
    (run / "checkpoints" / "newest").symlink_to(last)
    (run / "model.safetensors").rename(run / "other.safetensors")
    (run / "model.safetensors").symlink_to("other.safetensors")
    (run.parent / "name").symlink_to(run)
    for answer in every_command(run.parent / "name"):
        assert answer.code == 0, answer.err


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        os.chdir(path.parent)  # its name may have at most 108 characters
        one.bind(path.name)


@pytest.mark.parametrize("make", [os.mkfifo, _socket], ids=["pipe", "socket"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "text/test/test.source"])
def test_nothing_waits_for_a_pipe_or_a_socket(
    run: Path, name: str, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run)
    (run / name).unlink()
    make(run / name)
    os.chdir(run.parent)
    for answer in every_command(run):
        is_one_sentence(answer)


# ---- sizes out of proportion --------------------------------------------------------------------

SIZES = {
    "wide": {"d_model": 8192},
    "wider": {"d_model": 65_536, "ffn": 262_144},
    "a wide inner layer": {"ffn": 262_144},
    "many positions": {"relative_positions": 4096},
    "deep": {"encoder_layers": 1000},
    "a million layers": {"decoder_layers": 1_000_000},
    "huge": {"d_model": 10**18},
    "digits": {"d_model": 10**400},
    "more heads than states": {"heads": 32},
    "stages": {"solver": "custom", "tableau": {"a": [[0] * i for i in range(1, 300)], "b": [1]}},
    "fractions": {"solver": "custom", "tableau": {"a": [], "b": ["1/" + "7" * 4000]}},
    "infinite": {"dropout": 1e400},
    "negative": {"d_model": -16},
    "text": {"d_model": "16"},
}


@pytest.mark.parametrize("change", SIZES.values(), ids=SIZES)
def test_sizes_that_the_weights_do_not_have_are_refused_before_they_are_built(
    run: Path, change: dict[str, Any]
) -> None:
    text = json.dumps(json.loads((run / "config.json").read_text()))
    edit(run, {"model": change})
    peak, start = _memory(), time.perf_counter()
    is_one_sentence(kutta("translate", run, stdin=b"ba be\n"))
    assert time.perf_counter() - start < 5
    assert _memory() - peak < 200, "MB"
    (run / "config.json").write_text(text)


def _memory() -> int:
    """The most memory that this process has had, in MB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


# ---- files that are not what they are called ----------------------------------------------------

CONTENTS = {
    "empty": b"",
    "binary": bytes(range(256)) * 4,
    "deep": b"[" * 100_000,
    "digits": b'{"run": ' + b"9" * 5000 + b"}",
    "a list": b"[]",
    "null": b"null",
    "a length of 2^63": b"\xff" * 7 + b"\x7f" + b"{}",
    "a header of 1 GB": (1 << 30).to_bytes(8, "little") + b"{}",
    "NUL": b"\0" * 100,
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.model"])
def test_a_file_of_anything_else_is_one_sentence(run: Path, name: str, content: bytes) -> None:
    (run / name).write_bytes(content)
    is_one_sentence(kutta("translate", run, stdin=b"ba be\n"))
    is_fine(kutta("info", run))


@pytest.mark.parametrize(
    "change",
    [
        {"run": "a\0b"},
        {"run": "x" * 5000},
        {"run": "\x1b[31mred"},
        {"run": 3},
        {"run": None},
        {"data": {"dir": "a\0b"}},
        {"data": {"dir": "line\nbreak"}},
        {"data": {"test": ["\0"]}},
        {"data": {"test": "test"}},
        {"decode": {"beam": 10**6}},
        {"decode": {"max_length": 10**9}},
        {"decode": {"batch_tokens": 10**12}},
        {"train": {"seed": 10**30}},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_config_edited_by_hand_is_one_sentence(run: Path, change: dict[str, Any]) -> None:
    edit(run, change)
    is_one_sentence(kutta("translate", run, stdin=b"ba be\n"))


def test_the_origin_of_weights_cannot_write_to_the_terminal(run: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = run / "model.safetensors"
    save_file(load_file(weights), weights, metadata={"kutta": "0.1.0 \x1b]0;title\x07"})
    (run / "checksums.json").unlink(missing_ok=True)
    answer = kutta("evaluate", run)
    assert answer.code == 0, answer.err
    assert "\x1b" not in answer.out
