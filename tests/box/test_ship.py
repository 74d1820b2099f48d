"""`tools/ship.py`: what becomes of a finished run, and what is refused."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ship import LIMIT, card_of, renew, scores_of, ship, size_of

from kutta.commands import evaluate_run
from kutta.config import Config
from kutta.errors import InputError
from kutta.integrity import verify, write_manifest
from kutta.metrics import Score
from kutta.model.weights import read_shapes, read_tensors
from kutta.runs import Run
from kutta.translate.evaluate import Evaluation

ROOT = Path(__file__).parents[2]


def all_files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def copy_of(run: Path, folder: Path, **settings: object) -> Path:
    """A copy of a run with other settings in its config, by full name (data__dir)."""
    shutil.copytree(run, folder)
    values = json.loads((folder / "config.json").read_text())
    for key, value in settings.items():
        section, _, name = key.partition("__")
        values[section][name] = value
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "checksums.json").unlink()
    return folder


def test_a_model_has_these_files_and_no_others(full_box: Path) -> None:
    assert sorted(all_files(full_box)) == [
        "xx-yy/README.md",
        "xx-yy/card.json",
        "xx-yy/checksums.json",
        "xx-yy/config.json",
        "xx-yy/decoder.onnx",
        "xx-yy/encoder.onnx",
        "xx-yy/export.json",
        "xx-yy/model.safetensors",
        "xx-yy/program.json",
        "xx-yy/tokenizer.model",
    ]


def test_the_run_is_not_changed(finished: Path, tmp_path: Path) -> None:
    before = all_files(finished)
    ship([finished], tmp_path / "box")
    assert all_files(finished) == before


def test_no_file_names_a_place_on_this_machine(finished: Path, full_box: Path) -> None:
    places = [str(finished.parent).encode(), str(Path.home()).encode(), str(ROOT).encode()]
    for name, content in all_files(full_box).items():
        assert not any(place in content for place in places if place != b"/"), name
    config = Config.load(full_box / "xx-yy" / "config.json")
    assert (config.run, config.data.dir) == ("runs/xx-yy", "data/tatoeba-toy")


def test_config_tokenizer_and_weights_are_those_of_the_run(finished: Path, full_box: Path) -> None:
    run, model = Run.load(finished), Run.load(full_box / "xx-yy")
    assert model.config.hash() == run.config.hash()
    assert model.config.model == run.config.model
    assert model.config.decode == run.config.decode
    assert model.vocabulary() == run.vocabulary()
    assert read_shapes(model.weights) == read_shapes(run.weights)
    assert model.signature == f"{run.signature}|weights:int8-rows-v1"
    exact, rounded = read_tensors(run.weights), read_tensors(model.weights)
    for name, tensor in exact.items():
        error = (rounded[name] - tensor).abs()
        assert (error <= tensor.abs().amax(dim=-1, keepdim=True) / 127 * 0.5001).all(), name
    assert model.weights.stat().st_size < 0.4 * run.weights.stat().st_size


def test_the_card_has_the_scores_of_both_weights(
    finished: Path, full_box: Path, tmp_path: Path
) -> None:
    card = json.loads((full_box / "xx-yy" / "card.json").read_text())
    full, small = copy_of(finished, tmp_path / "full"), copy_of(finished, tmp_path / "small")
    for name in ("model.safetensors", "encoder.onnx", "decoder.onnx", "export.json"):
        shutil.copy(full_box / "xx-yy" / name, small)
    write_manifest(small)
    (of_full,), (of_small,) = (evaluate_run(run, [], None, "cpu") for run in (full, small))
    expected = {
        score.name: (score.value, other.value, score.signature)
        for score, other in zip(of_full.scores, of_small.scores, strict=True)
    }
    found = {row["metric"]: (row["full"], row["int8"], row["signature"]) for row in card["scores"]}
    assert found == expected
    assert card["scores"][0]["metric"] == "sacreBLEU"
    assert card["signature"] == {"full": of_full.signature, "int8": of_small.signature}
    assert card["signature"]["int8"] != card["signature"]["full"]
    text = (full_box / "xx-yy" / "README.md").read_text()
    for name, (before, after, signature) in expected.items():
        assert f"| test | {name} | {before:.2f} | {after:.2f} | " in text
        assert f"- {name}: `{signature}`\n" in text
    assert f"- full weights: `{of_full.signature}`\n" in text
    assert f"- 8-bit weights: `{of_small.signature}`\n" in text


def test_the_loss_is_what_the_8_bit_weights_lack(full_box: Path) -> None:
    def scored(value: float) -> list[Evaluation]:
        scores = [Score("BLEU", value + 1, "", "b"), Score("sacreBLEU", value, "", "s")]
        return [Evaluation("test", 8, scores, None, "run")]

    rows = [*scores_of(scored(30.5), scored(30.25))]
    assert rows[1] == {
        "test": "test",
        "metric": "sacreBLEU",
        "full": 30.5,
        "int8": 30.25,
        "signature": "s",
    }
    facts = json.loads((full_box / "xx-yy" / "card.json").read_text()) | {"scores": rows}
    assert "| test | sacreBLEU | 30.50 | 30.25 | +0.25 |\n" in card_of(facts)
    facts = facts | {"scores": [*scores_of(scored(30.25), scored(30.5))]}
    assert "| test | sacreBLEU | 30.25 | 30.50 | -0.25 |\n" in card_of(facts)


def test_the_card_has_languages_licence_attribution_split_and_size(full_box: Path) -> None:
    text = (full_box / "xx-yy" / "README.md").read_text()
    count = sum(t.numel() for t in Run.load(full_box / "xx-yy").load_model().parameters())
    for part in (
        "# xx to yy",
        "CC BY 2.0 FR",
        "contributors of the Tatoeba project (https://tatoeba.org)",
        "https://www.manythings.org/anki",
        "tatoeba-toy: 120 train, 12 valid, 8 test pairs",
        "no English sentence is in two",
        f"{count:,} parameters",
        "rk2, gamma learned, field san+ffn",
        "kutta translate xx-yy",
    ):
        assert part in text, part


def test_a_model_takes_the_place_of_an_older_one(finished: Path, tmp_path: Path) -> None:
    old = tmp_path / "box" / "xx-yy"
    old.mkdir(parents=True)
    (old / "leftover").write_text("of before")
    (made,) = ship([finished], tmp_path / "box")
    assert made == old
    assert not (old / "leftover").exists()
    assert [path.name for path in (tmp_path / "box").iterdir()] == ["xx-yy"]


def test_the_limit_counts_all_models_and_nothing_is_changed_beyond_it(
    finished: Path, full_box: Path, tmp_path: Path
) -> None:
    box, size = tmp_path / "box", size_of(full_box / "xx-yy")
    (box / "other").mkdir(parents=True)
    (box / "other" / "weights").write_bytes(bytes(1000))
    (box / "__init__.py").write_text("# code is not counted")
    with pytest.raises(InputError, match=rf"would take {size + 1000:,} bytes, more than {size:,}"):
        ship([finished], box, limit=size)
    assert sorted(path.name for path in box.iterdir()) == ["__init__.py", "other"]
    ship([finished], box, limit=size + 1000)
    ship([finished], box, limit=size + 1000)  # it replaces itself and is counted once
    assert LIMIT == 16 * 10**6


def test_renewed_graphs_leave_the_weights_as_they_are(
    finished: Path, full_box: Path, tmp_path: Path
) -> None:
    box = tmp_path / "box"
    shutil.copytree(full_box, box)
    model, before = box / "xx-yy", full_box / "xx-yy"
    card = json.loads((model / "card.json").read_text(encoding="utf-8"))
    scores = [row["int8"] for row in card["scores"]]
    for row in card["scores"]:
        row["int8"] = 0.0
    (model / "card.json").write_text(json.dumps(card), encoding="utf-8")
    (model / "decoder.onnx").write_bytes(b"older")
    (model / "program.json").unlink()
    write_manifest(model)
    assert renew(Path(Run.load(finished).config.data.dir), box) == [model]
    for name in ("decoder.onnx", "encoder.onnx", "program.json", "export.json", "README.md"):
        assert (model / name).read_bytes() == (before / name).read_bytes(), name
    renewed = json.loads((model / "card.json").read_text(encoding="utf-8"))
    assert [row["int8"] for row in renewed["scores"]] == scores
    verify(model, remedy="make it again")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data__dir": "data/wmt14-en-de"}, "the licence is known for tatoeba-* only"),
        ({"data__test": []}, "not a translation model with a test set"),
        ({"data__train": "/home/me/train"}, "data.train = '/home/me/train' is a path of this"),
        ({"data__test": ["C:\\text\\test"]}, "data.test = 'C:\\\\text\\\\test' is a path of this"),
    ],
)
def test_a_run_that_cannot_be_shipped_is_refused(
    finished: Path, tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    run = copy_of(finished, tmp_path / "run", **settings)
    with pytest.raises(InputError, match=re.escape(message)):
        ship([run], tmp_path / "box")
    assert not (tmp_path / "box").exists()


def test_what_is_not_a_finished_run_is_refused(
    finished: Path, full_box: Path, tmp_path: Path
) -> None:
    box = tmp_path / "box"
    with pytest.raises(InputError, match="not a finished run"):
        ship([Run.load(finished).checkpoints()[0].path], box)
    unfinished = copy_of(finished, tmp_path / "run")
    (unfinished / "model.safetensors").unlink()
    with pytest.raises(InputError, match="not a finished run"):
        ship([unfinished], box)
    with pytest.raises(InputError, match="already in 8 bits"):
        ship([full_box / "xx-yy"], box)
    with pytest.raises(InputError, match="same languages"):
        ship([finished, finished], box)
    with pytest.raises(InputError, match="There is no folder"):
        ship([tmp_path / "absent"], box)
    assert not box.exists()


def test_the_script_answers_wrong_input_with_one_sentence(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "tools" / "ship.py")]
    done = subprocess.run([*script, "absent"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ship: There is no folder absent; give a run directory")
    assert done.stderr.count("\n") == 1
