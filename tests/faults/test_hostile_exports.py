"""Exported models that somebody made to do harm, with checksums that match."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kutta.errors import InputError
from kutta.export.export import export_run
from kutta.integrity import MANIFEST, write_manifest
from kutta.runs import Run
from kutta.runtime.asked import asked_by
from tests.test_cli import is_one_sentence, kutta


@pytest.fixture(scope="module")
def good(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile exports") / "exported"
    export_run(Run.load(toy_run), folder)
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    shutil.copytree(good, tmp_path / "exported")
    return tmp_path / "exported"


def seal(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    write_manifest(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"heads": 60_000},
        {"width": 65_536},
        {"caches": 10_000},
        {"memories": 0},
        {"heads": True},
        {"heads": "2"},
        {"width": -1},
        {"width": 10**18},
        {"vocabulary": 299},
        {"version": "x" * 5000},
        {"more": 1},
    ],
    ids=lambda change: str(change)[:30],
)
def test_sizes_that_the_graphs_do_not_have_are_refused(
    folder: Path, change: dict[str, Any]
) -> None:
    path = folder / "export.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    seal(folder)
    is_one_sentence(kutta("translate", folder, stdin=b"ba be\n"))


@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"null", b"\xff", b"9" * 5000])
def test_a_description_that_is_something_else_is_refused(folder: Path, content: bytes) -> None:
    (folder / "export.json").write_bytes(content)
    is_one_sentence(kutta("translate", folder, stdin=b"ba be\n"), "export.json")


@pytest.mark.parametrize("name", ["encoder.onnx", "tokenizer.model", "config.json"])
def test_a_link_that_leads_out_is_refused(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_bytes((folder / name).read_bytes())
    (folder / name).unlink()
    (folder / name).symlink_to("../secret")
    is_one_sentence(kutta("translate", folder, stdin=b"ba be\n"), "is a link to")


def test_graphs_of_another_model_are_refused(folder: Path) -> None:
    shutil.copy(folder / "encoder.onnx", folder / "decoder.onnx")
    seal(folder)
    is_one_sentence(kutta("translate", folder, stdin=b"ba be\n"), "decoder.onnx")


def test_messages_in_messages_have_a_limit(tmp_path: Path) -> None:
    """Subgraphs of subgraphs: model > graph > node > attribute > graph > ..."""

    def inside(number: int, content: bytes) -> bytes:
        size, length = len(content), b""
        while True:
            length += bytes([size & 127 | (128 if size > 127 else 0)])
            size >>= 7
            if not size:
                return bytes([number << 3 | 2]) + length + content

    message = b""
    for _ in range(500):
        message = inside(1, inside(5, inside(6, message)))
    (tmp_path / "deep.onnx").write_bytes(inside(7, message))
    with pytest.raises(InputError, match="messages in each other"):
        asked_by(tmp_path / "deep.onnx")
