"""The server on exported models: without torch, on all cores, and when their folder vanishes."""

import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from kutta import box
from kutta.config import DecodeConfig
from kutta.errors import TRAIN
from kutta.export.export import export_run
from kutta.runs import Run
from kutta.runtime import open_export
from kutta.server.models import load_models
from kutta.translate import Translator
from kutta.translate.exported import ExportedModel
from kutta.translate.workers import cores
from tests.server.conftest import running

WITHOUT_TORCH = (
    f"import sys; sys.modules |= dict.fromkeys({sorted(TRAIN)!r}); "
    "from kutta.cli import main; main()"
)
LINES = ["ba be bi", "do", "ba da de di do du", "be be"]
FIELDS = {"source": "xx", "target": "yy"}


@pytest.fixture(scope="module")
def folder(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "toy"
    export_run(Run.load(toy_run), path)
    return path


def test_it_serves_without_torch(folder: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, "serve", str(folder), "--port", "0"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as one:  # type: ignore[call-overload]
        try:
            said = one.stderr.readline()
            found = re.search(r"http://\S+", said)
            assert found, said + one.stderr.read()
            with httpx.Client(base_url=found[0], timeout=20, trust_env=False) as client:
                answer = client.post("/translate", json={"q": LINES, **FIELDS})
                expected = Translator.load(folder).translate(LINES)
                assert answer.json() == {"translatedText": expected}
                stream = client.post("/translate/stream", json={"q": "Ba be. Do.", **FIELDS})
                assert stream.text.count("event: sentence") == 2
                assert client.get("/").status_code == 200
                assert client.get("/metrics").status_code == 200
                assert client.post("/detect", json={"q": "Guten Tag"}).status_code == 200
                reason = client.get("/inside").json()["missing"]["xx-yy"]
                assert "PyTorch; run `pip install 'kutta[train]'` to look inside." in reason
                refused = client.post("/inside/states", json={"q": "ba be", **FIELDS})
                assert (refused.status_code, refused.json()) == (404, {"error": reason})
        finally:
            one.terminate()
        assert one.wait(20) == 0


def test_a_run_without_torch_is_told_in_a_sentence(toy_run: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, "serve", str(toy_run), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "pip install 'kutta[train]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_every_core_translates_and_clients_get_what_they_would_get_alone(folder: Path) -> None:
    (model,) = load_models([str(folder)])
    assert model.threads == cores()
    expected = dict(zip(LINES, translated(folder), strict=True))
    with running([model]) as one, ThreadPoolExecutor(16) as clients:

        def ask(number: int) -> None:
            line = LINES[number % len(LINES)]
            fields = {"q": line, "alternatives": number % 2, **FIELDS}
            answer = httpx.post(f"{one.url}/translate", json=fields, timeout=20, trust_env=False)
            if number % 2 == 0:
                assert answer.json()["translatedText"] == expected[line]
            else:
                assert len(answer.json()["alternatives"]) <= 1

        list(clients.map(ask, range(64)))
        assert all(entry["status"] == 200 for entry in one.log())


def translated(folder: Path) -> list[str]:
    translator = Translator.load(folder, workers=1)
    return [translator.translate([line])[0] for line in LINES]


def test_its_folder_may_vanish_before_the_first_request(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    models = load_models([str(copy)])
    shutil.rmtree(copy)
    with running(models) as one:
        found = one.translate(LINES, "xx", "yy")["translatedText"]
        assert found == Translator.load(folder).translate(LINES)
        assert one.client.get("/inside").status_code == 200


def test_without_arguments_an_export_in_the_box_is_served(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder, tmp_path / "xx-yy")
    (tmp_path / "xx-yy" / box.CARD).write_text(json.dumps({}))
    monkeypatch.setattr(box, "BOX", tmp_path)
    for names in ([], ["xx-yy"]):
        (model,) = load_models(names)
        assert (model.name, model.pair) == ("xx-yy", "xx-yy")
        assert model.hypotheses(["ba"], 1)[0][0][0] == Translator.load(folder).translate(["ba"])[0]


def test_another_device_is_one_for_torch(folder: Path) -> None:
    from kutta import InputError

    with pytest.raises(InputError, match="cuda"):
        load_models([str(folder)], "cuda")
    exported = open_export(folder)
    with pytest.raises(InputError, match="runs on the CPU, not on cuda"):
        Translator(ExportedModel(exported), exported.tokenizers, DecodeConfig(), "cuda")
