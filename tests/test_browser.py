"""examples/browser: its tokenizer and its translations are those of Kutta, in real Chromium."""

import functools
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kutta.data.tokenizer import BPE
from kutta.export.export import export_run
from kutta.runs import Run
from kutta.training.run import train
from kutta.translate import Translator
from kutta.translate.hypothesis import one_line
from tests.conftest import toy_config, write_toy_corpus

EXAMPLE = Path(__file__).parent.parent / "examples" / "browser"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
TEXTS = [
    "ba be bi bo bu",
    "  ba\tbe\u3000bi\n",
    "",
    "babebibobu dadadada",
    "déjà vu, 漢字 🙂",
    "a\u2581b \u2581",
    "zero\u200bwidth \ufeff mark",
    "nul\0 and \x1f and \x85 and \u2028 lines",
]
IDS = [[*range(260, 290)], [*range(4, 260)], [0, 1, 2, 3], [4 + 0xE2, 4 + 0x82, 4 + 0xAC, 4 + 0xE2]]
SCRIPT = """
import { readFileSync } from "node:fs";
import { Tokenizer } from "./tokenizer.mjs";
const { texts, ids } = JSON.parse(readFileSync(0));
const tokenizer = new Tokenizer(new Uint8Array(readFileSync("tokenizer.model")));
const encoded = texts.map((text) => tokenizer.encode(text));
const decoded = ids.map((one) => tokenizer.decode(one));
process.stdout.write(JSON.stringify({ ids: encoded, texts: decoded }));
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned something, so that its translations do not hang on a hair."""
    folder = tmp_path_factory.mktemp("browser")
    write_toy_corpus(folder / "text", 1000)
    settings = {"max_steps": 80, "warmup": 20, "batch_tokens": 600, "lr": 0.01, "save_every": 80}
    config = toy_config(folder, train={**settings, "tensorboard": False, "threads": 1})
    return train(config, console=Console(quiet=True)).run


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_the_tokenizer_is_that_of_python(toy_run: Path, tmp_path: Path) -> None:
    shutil.copyfile(EXAMPLE / "tokenizer.js", tmp_path / "tokenizer.mjs")
    shutil.copyfile(toy_run / "tokenizer.model", tmp_path / "tokenizer.model")
    (tmp_path / "script.mjs").write_text(SCRIPT)
    given = json.dumps({"texts": TEXTS, "ids": IDS})
    command = ["node", "script.mjs"]
    done = subprocess.run(command, cwd=tmp_path, input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    known = BPE.load(toy_run / "tokenizer.model")
    found = json.loads(done.stdout)
    assert found["ids"] == [known.encode(text) for text in TEXTS]
    assert found["texts"] == [one_line([i for i in ids if i < len(known)], known) for ids in IDS]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the example on a plain file server, with a model and onnxruntime-web."""
    folder = tmp_path_factory.mktemp("site") / "browser"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules", "model"))
    npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(npm, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install onnxruntime-web: {done.stderr[-200:]}")
    export_run(Run.load(run), folder / "model", "int8")
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.skipif(
    CHROMIUM is None or shutil.which("npm") is None, reason="Chromium or npm is not installed"
)
def test_a_page_translates_without_a_server(site: str, run: Path, tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    export_run(Run.load(run), tmp_path / "model", "int8")
    lines = ["ba be bi", "du", "da de di do du ba", "be bo ba bu", "bi bi bi", "", "do de"]
    expected = Translator.load(tmp_path / "model").translate(lines, beam=1)
    words = set(" ".join(expected).split())
    assert len(words) > 2, "the model has learned too little"
    assert words <= {word.upper() for line in lines for word in line.split()}
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, trouble = browser.new_page(), list[str]()
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("console", lambda said: said.type == "error" and trouble.append(said.text))
        page.on("request", lambda asked: asked.url.startswith(site) or trouble.append(asked.url))
        page.goto(site)
        status, expect = page.locator("#status"), sync_api.expect
        expect(status).to_have_text("Ready", timeout=60_000)
        page.locator("#source").fill("\n".join(lines))
        expect(page.locator("#target")).to_have_text("\n".join(expected), timeout=60_000)
        expect(status).to_have_text("Ready")
        page.locator("#source").fill("")
        expect(page.locator("#target")).to_have_text("")
        browser.close()
    assert [said for said in trouble if not said.startswith("data:")] == []
