"""The models that are really in the box: their size, their cards, and that they translate."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ship import LIMIT, size_of

from kutta import Translator
from kutta.box import CARD, models
from kutta.runs import Run

MODELS = models()
needs_models = pytest.mark.skipif(
    not MODELS, reason="the box is empty; tools/ship.py puts finished runs into it"
)
each = pytest.mark.parametrize("name", [*MODELS] or [pytest.param("-", marks=needs_models)])

# A question that every model should know, and a word of its only good translation.
ASKED = {
    "en-de": ("Where is the station?", "Bahnhof"),
    "de-en": ("Wo ist der Bahnhof?", "station"),
}


def test_the_box_is_small() -> None:
    assert sum(map(size_of, MODELS.values())) <= LIMIT


@needs_models
def test_every_model_is_asked_something() -> None:
    assert MODELS.keys() <= ASKED.keys()


@each
def test_a_model_translates_from_the_shell_in_any_folder(name: str, tmp_path: Path) -> None:
    """As in the README: echo "Where is the station?" | kutta translate en-de."""
    asked, word = ASKED[name]
    kutta = shutil.which("kutta", path=Path(sys.executable).parent)
    command = [kutta] if kutta else [sys.executable, "-m", "kutta"]
    done = subprocess.run(
        [*command, "translate", name],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        input=f"{asked}\n",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert word in done.stdout
    assert list(tmp_path.iterdir()) == []


@each
def test_a_model_translates_in_python(name: str) -> None:
    asked, word = ASKED[name]
    assert word in Translator.load(name, "cpu").translate([asked])[0]


@each
def test_a_model_has_the_files_of_a_model_only(name: str) -> None:
    assert sorted(path.name for path in MODELS[name].iterdir()) == [
        "README.md",
        "card.json",
        "checksums.json",
        "config.json",
        "decoder.onnx",
        "encoder.onnx",
        "export.json",
        "model.safetensors",
        "program.json",
        "tokenizer.model",
    ]


@each
def test_no_file_names_a_place_on_a_machine(name: str) -> None:
    for file in MODELS[name].iterdir():
        content = file.read_bytes()
        for place in (b"/work/", b"/srv/", b"/home/", b"/root/", b"/tmp/", b"/Users/", b"C:\\"):
            assert file.suffix == ".safetensors" or place not in content, (file.name, place)


@each
def test_the_card_fits_the_model(name: str) -> None:
    run = Run.load(name)
    card = json.loads((MODELS[name] / CARD).read_text(encoding="utf-8"))
    text = run.card.read_text(encoding="utf-8")
    count = sum(parameter.numel() for parameter in run.load_model().parameters())
    assert card["parameters"] == count
    assert 5e6 <= count <= 8.5e6
    assert f"{card['source']}-{card['target']}" == name
    assert f"|config:{run.config.hash()}|" in card["signature"]["int8"]
    assert "|weights:int8-rows-v1|" in card["signature"]["int8"]
    assert run.signature.endswith("|weights:int8-rows-v1")
    for part in ("CC BY 2.0 FR", "Tatoeba", "https://tatoeba.org", "manythings.org/anki"):
        assert part in text


@each
def test_8_bits_cost_little(name: str) -> None:
    card = json.loads((MODELS[name] / CARD).read_text(encoding="utf-8"))
    for row in card["scores"]:
        assert row["int8"] > 20, "a model that translates"
        assert abs(row["full"] - row["int8"]) < 0.5, row
