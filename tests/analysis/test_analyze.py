"""The command from end to end: files, tables, and sentences where it cannot be done."""

import io
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from matplotlib import pyplot
from rich.console import Console

from kutta.analysis import figures
from kutta.analysis.analyze import ANALYSES, Request, analyze
from kutta.analysis.observe import stacks_of
from kutta.analysis.subject import load_subject
from kutta.cli import main
from kutta.errors import InputError
from tests.analysis.conftest import MakeRun, MakeSubject, no_track

QUIET = Console(quiet=True)


def test_everything_of_a_trained_run(toy_run: Path, tmp_path: Path) -> None:
    before = sorted(path for path in toy_run.rglob("*"))
    shown = io.StringIO()
    request = Request(toy_run, sentences=2, out=tmp_path / "out", bleu=True)
    results = analyze(request, Console(file=shown, width=120))
    assert list(results) == list(ANALYSES)
    for name, result in results.items():
        assert json.loads((tmp_path / "out" / f"{name}.json").read_text()) == result
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / "out" / f"{name}.svg").read_text()
        assert result["sentences"] == 2
        assert result["signature"].startswith("kutta:")
    text = shown.getvalue()
    assert "encoder by block" in text
    assert "as trained" not in text
    assert "perplexity" in text
    assert sorted(path for path in toy_run.rglob("*")) == before


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "dlcl", "decoder_solver": "leapfrog"},
        {"solver": "rk2", "gamma": "gated", "field": "macaron"},
        {"source": "", "encoder_layers": 0, "solver": "rk4", "gamma": "learned"},
    ],
    ids=str,
)
def test_other_kinds_of_models_are_drawn_too(
    make_subject: MakeSubject, settings: dict[str, Any]
) -> None:
    """Every result of every kind makes a table and a picture; nothing is saved, which is slow."""
    subject = make_subject(sentences=1, **settings)
    (subject.run / "metrics.jsonl").unlink()
    for analysis in ANALYSES.values():
        result = analysis.measure(subject, no_track)
        assert [table.row_count for table in analysis.tabulate(result)]
        figure = analysis.draw(result)
        assert len(figure.axes) >= len(stacks_of(subject.model))
        pyplot.close(figure)


def test_text_of_a_test_set(toy_run: Path) -> None:
    subject = load_subject(toy_run, 3, "test", None, "cpu")
    lines = (toy_run.parent / "text" / "test.yy").read_text().splitlines()
    assert len(subject.pairs) == 3
    assert subject.references == [lines[0], lines[4], lines[7]]
    assert subject.facts()["text"] == "test"


def test_the_store_serves_where_the_text_has_gone(make_run: MakeRun) -> None:
    run = make_run()
    subject = load_subject(run, 100, None, None, "cpu")
    assert len(subject.pairs) == 12  # all there are
    (run / "store" / "valid.arrow").unlink()
    with pytest.raises(InputError, match="--test"):
        load_subject(run, 100, None, None, "cpu")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"what": ["trunkation"]}, "did you mean truncation"),
        ({"what": ["weather"]}, "there are truncation, blocks, gradients, inference"),
        ({"methods": ["leapfrgo"]}, "did you mean leapfrog"),
        ({"sentences": 0}, "at least 1"),
        ({"test": "nothing"}, "There is no nothing.xx"),
        ({"data_dir": "nowhere"}, "There is no folder nowhere"),
        ({"run": Path("nowhere")}, "There is no folder nowhere"),
        ({"device": "abacus"}, "abacus"),
        ({"out": Path(__file__)}, "choose another with --out"),
    ],
)
def test_wrong_wishes(toy_run: Path, tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    request = Request(**({"run": toy_run, "out": tmp_path / "out"} | change))
    with pytest.raises(InputError, match=sentence):
        analyze(request, QUIET)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the folder of a run"):
        analyze(Request(tmp_path), QUIET)


def test_a_run_that_is_not_trained_yet(make_run: MakeRun) -> None:
    run = make_run()
    (run / "model.safetensors").unlink()
    with pytest.raises(InputError, match="training has not finished"):
        analyze(Request(run), QUIET)


def test_what_is_no_ode_is_left_out_or_refused(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "save_figure", lambda *_: [])
    run = make_run(solver="euler", norm="post")
    shown = io.StringIO()
    assert list(analyze(Request(run, sentences=1), Console(file=shown))) == ["blocks", "gradients"]
    assert "left out: truncation, inference" in shown.getvalue()
    with pytest.raises(InputError, match="no step of an ODE"):
        analyze(Request(run, ["truncation"]), QUIET)


def test_the_command_prints_json_for_a_program(
    toy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["kutta", "analyze", str(toy_run), "gradients", "--sentences", "1", "--json"]
    with patch("sys.argv", [*line, "--out", str(tmp_path / "out")]), pytest.raises(SystemExit) as e:
        main()
    assert not e.value.code
    printed = capsys.readouterr()
    results = json.loads(printed.out)
    assert list(results) == ["gradients"]
    assert results["gradients"]["rows"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("gradients.json", "gradients.png", "gradients.svg"),
    }
    assert "gradient norms" in printed.err


def test_the_command_says_what_is_wrong_in_one_sentence(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["kutta", "analyze", str(toy_run), "trunkation"]
    with patch("sys.argv", line), pytest.raises(SystemExit) as e:
        main()
    assert e.value.code == 2
    said = capsys.readouterr().err
    assert said == "kutta: There is no analysis 'trunkation'; did you mean truncation?\n"


def test_numbers_that_are_not_finite_are_told_and_drawn(make_subject: MakeSubject) -> None:
    """A model may blow up under another method; the rest of the result still shows."""
    subject = make_subject(sentences=1, encoder_layers=1)
    for name, broken in {
        "truncation": ("error", "order", "low", "high", "estimate"),
        "blocks": ("state", "time", "relative_step", "cosine_to_state"),
        "gradients": ("state", "parameters"),
        "inference": ("perplexity", "nll"),
    }.items():
        result = ANALYSES[name].measure(subject, no_track)
        for row in result["rows"][1:]:
            row |= dict.fromkeys(broken)
        console = Console(file=io.StringIO(), width=120)
        for table in ANALYSES[name].tabulate(result):
            console.print(table)
        assert " - " in console.file.getvalue()  # type: ignore[attr-defined]
        figure = ANALYSES[name].draw(result)
        figure.canvas.draw()
        pyplot.close(figure)
