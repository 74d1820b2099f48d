"""Models in the box are found by name wherever a run is read, and are never written to."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kutta import Config, Translator, train
from kutta.box import find_run, is_in_box, models
from kutta.config.load import presets
from kutta.errors import InputError
from kutta.runs import Run, open_run
from tests.box.test_ship import all_files
from tests.test_cli import is_one_sentence, kutta

LINES = ["ba be", "", "da do du"]


@pytest.fixture(autouse=True)
def unchanged(full_box: Path) -> object:
    """No test of this file, and no command, changes the box."""
    before = all_files(full_box)
    yield
    assert all_files(full_box) == before


# ---- finding --------------------------------------------------------------------------------


def test_a_model_is_found_by_name(box: Path) -> None:
    assert models() == {"xx-yy": box / "xx-yy"}
    assert find_run("xx-yy") == find_run(Path("xx-yy")) == box / "xx-yy"
    assert Run.load("xx-yy").path == box / "xx-yy"


def test_only_folders_with_a_card_are_models(empty_box: Path, full_box: Path) -> None:
    for name in ("b-a", "a-b", ".a-b.12.tmp", "__pycache__"):
        shutil.copytree(full_box / "xx-yy", empty_box / name)
    (empty_box / "empty").mkdir()
    (empty_box / "__init__.py").touch()
    assert [*models()] == ["a-b", "b-a"]


def test_a_folder_of_that_name_comes_first_if_it_exists(box: Path, finished: Path) -> None:
    Path("xx-yy").write_text("a file is no run")
    assert find_run("xx-yy") == box / "xx-yy"
    Path("xx-yy").unlink()
    shutil.copytree(finished, "xx-yy")
    assert find_run("xx-yy") == Path("xx-yy")
    assert Run.load("xx-yy").config.hash() == Run.load(finished).config.hash()
    assert json.loads(kutta("info", "xx-yy", "--json").out)["run"] == "xx-yy"


@pytest.mark.parametrize("name", ["xx-zz", "runs/mine", "../xx-yy", "x" * 300])
@pytest.mark.parametrize("command", ["translate", "evaluate", "analyze", "sample"])
def test_an_unknown_name_is_answered_with_the_models(box: Path, command: str, name: str) -> None:
    said = f"There is no folder {name}; give a run directory, or a model in the box: xx-yy."
    is_one_sentence(kutta(command, name), said)


def test_an_unknown_name_in_python_is_answered_with_the_models(box: Path) -> None:
    with pytest.raises(InputError, match=r"no folder xx-zz; give .* a model in the box: xx-yy\.$"):
        Translator.load("xx-zz")


def test_a_file_or_a_misspelled_name_is_answered_with_the_run_that_was_meant(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "runs" / "mine")
    (tmp_path / "mine.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    weights = next(Path("runs/mine").rglob("checkpoints/*/*.safetensors"))
    for given, said in {
        "runs/mine/config.json": "is a file; give the run directory runs/mine",
        str(weights): "is a file; give the run directory runs/mine",
        "mine.toml": r"is a file; give the run directory, which .* \(by default runs/mine\)",
        "runs/mien": r"; did you mean runs/mine\?$",
        "mine": r"; did you mean runs/mine\?$",
        "runs/another": "; give a run directory",
    }.items():
        with pytest.raises(InputError, match=said):
            find_run(given)


def test_without_models_the_answer_names_none(empty_box: Path) -> None:
    is_one_sentence(kutta("translate", "xx-yy"), "no folder xx-yy; give a run directory.\n")
    is_one_sentence(kutta("info", "xyzzy"), "; `kutta info --list` lists the presets.\n")


def test_info_suggests_presets_and_models(box: Path) -> None:
    is_one_sentence(kutta("info", "xx-yyy"), "preset 'xx-yyy'; did you mean xx-yy?")
    is_one_sentence(kutta("info", "unknown"), "lists the presets, and the models are xx-yy.")


@pytest.mark.parametrize("command", ["train", "prepare"])
def test_a_model_is_not_a_config(box: Path, command: str) -> None:
    is_one_sentence(kutta(command, "xx-yy"), "There is no config file or preset 'xx-yy'")


def test_no_model_has_the_name_of_a_preset() -> None:
    assert not models().keys() & presets().keys()


def test_finding_and_listing_load_no_torch() -> None:
    """In a Python of its own: here torch has long been loaded."""
    code = (
        "import sys, kutta.cli\nfrom kutta.box import find_run, models\nmodels()\n"
        "try: find_run('absent')\nexcept kutta.cli.InputError: pass\n"
        "sys.argv = ['kutta', 'models']\n"
        "try: kutta.cli.main()\nexcept SystemExit as stop: assert not stop.code, stop.code\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- using ----------------------------------------------------------------------------------


def test_a_model_translates_with_its_8_bit_weights(box: Path, finished: Path) -> None:
    found = Translator.load("xx-yy")
    assert found.precision == "int8"
    exact = Run.load(finished).load_model().state_dict()
    for name, tensor in Run.load("xx-yy").load_model().state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.allclose(tensor, exact[name], atol=float(exact[name].abs().max()) / 250)
    answer = kutta("translate", "xx-yy", stdin="\n".join(LINES).encode())
    assert answer.out.split("\n")[:-1] == found.translate(LINES)
    assert any(found.translate(LINES))


def test_translating_with_a_model_loads_no_torch(box: Path) -> None:
    code = (
        "import sys, kutta.box\nfrom pathlib import Path\n"
        f"kutta.box.BOX = Path({str(box)!r})\n"
        "from kutta import Translator\nprint(Translator.load('xx-yy').translate(['ba be'])[0])\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{Translator.load('xx-yy').translate(['ba be'])[0]}\n"


def test_models_and_runs_form_an_ensemble(box: Path, finished: Path) -> None:
    answer = kutta("translate", "xx-yy", finished, stdin=b"ba be\n")
    assert (answer.code, answer.out.count("\n")) == (0, 1)


def test_evaluate_writes_into_the_current_directory(box: Path, finished: Path) -> None:
    text = finished.parent / "tatoeba-toy"
    (result,) = json.loads(kutta("evaluate", "xx-yy", "--data-dir", text, "--json").out)
    assert result["sentences"] == 8
    assert "|weights:int8-rows-v1|" in result["signature"]
    assert result["hypotheses"] == "hypotheses/xx-yy/test.yy"
    assert Path(result["hypotheses"]).read_text().count("\n") == 8
    card = json.loads((box / "xx-yy" / "card.json").read_text())
    assert {row["metric"]: row["int8"] for row in card["scores"]} == {
        score["name"]: score["value"] for score in result["scores"]
    }


def test_evaluate_without_the_text_says_what_is_missing(box: Path) -> None:
    is_one_sentence(kutta("evaluate", "xx-yy"), "There is no folder data/tatoeba-toy")


def test_analyze_writes_into_the_current_directory(box: Path, finished: Path) -> None:
    text = finished.parent / "tatoeba-toy"
    words = ("blocks", "--test", "test", "--data-dir", text, "--sentences", 2)
    answer = kutta("analyze", "xx-yy", *words)
    assert answer.code == 0, answer.err
    assert Path("analysis/xx-yy/blocks.json").is_file()
    is_one_sentence(kutta("analyze", "xx-yy", "blocks"), "no validation store", "--data-dir")


def test_info_describes_a_model(box: Path, finished: Path) -> None:
    facts = json.loads(kutta("info", "xx-yy", "--json").out)
    of_run = json.loads(kutta("info", finished, "--json").out)
    for name in ("config", "method", "gamma", "layers", "vocabulary", "parameters"):
        assert facts[name] == of_run[name], name
    assert facts["vocabulary"]["known"] == "from the run"
    assert facts["training"]["finished"]
    resolved = json.loads(kutta("info", "xx-yy", "--resolved", "--json").out)
    assert resolved["data.dir"]["value"] == "data/tatoeba-toy"


def test_models_lists_what_is_in_the_box(box: Path) -> None:
    answer = kutta("models")
    head, row = (re.split(r" {2,}", line) for line in answer.out.splitlines())
    cells = dict(zip(head, row, strict=True))
    card = json.loads((box / "xx-yy" / "card.json").read_text())
    size = sum(file.stat().st_size for file in (box / "xx-yy").iterdir())
    assert cells == {
        "model": "xx-yy",
        "languages": "xx to yy",
        "parameters": f"{card['parameters']:,}",
        "method": "rk2, gamma learned, field san+ffn",
        "score": f"sacreBLEU {card['scores'][0]['int8']:.1f}",
        "size": f"{size / 1e6:.1f} MB",
        "licence": "CC BY 2.0 FR",
    }


def test_models_says_that_the_box_is_empty(empty_box: Path) -> None:
    answer = kutta("models")
    assert answer.code == 0
    assert answer.out == "There are no models in the box; train one with `kutta train`.\n"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"scores": []}'])
def test_a_damaged_card_is_told(empty_box: Path, text: str) -> None:
    (empty_box / "a-b").mkdir()
    (empty_box / "a-b" / "card.json").write_text(text)
    is_one_sentence(kutta("models"), "card.json is damaged", "reinstall Kutta")


# ---- not writing ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["xx-yy", "new", "xx-yy/inside"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_training_never_writes_into_the_box(
    box: Path, finished: Path, name: str, overwrite: bool
) -> None:
    config = Config.load(finished / "config.json", [f"run={box / name}"])
    with pytest.raises(InputError, match="in the box of models shipped with Kutta"):
        train(config, overwrite)
    with pytest.raises(InputError, match="in the box of models shipped with Kutta"):
        open_run(config)
    assert is_in_box(box / name)


def test_commands_that_write_runs_refuse_the_box(box: Path, finished: Path) -> None:
    place = ("--set", f"run={box / 'xx-yy'}")
    said = "is in the box of models shipped with Kutta, which training does not change"
    for words in (("train",), ("train", "--dry-run"), ("train", "--overwrite"), ("prepare",)):
        is_one_sentence(kutta(*words, finished / "config.json", *place), said)
    is_one_sentence(kutta("average", "xx-yy"), "no checkpoints to average", "finished model")


def test_a_model_can_be_copied_and_used_as_a_run(box: Path) -> None:
    shutil.copytree(box / "xx-yy", "mine")
    assert kutta("translate", "mine", stdin=b"ba be\n").out == (
        kutta("translate", "xx-yy", stdin=b"ba be\n").out
    )
    assert not is_in_box(Path("mine"))
