"""The command from end to end: files, tables, and sentences where it cannot be done."""

import io
import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from kutta.analysis import analyze as analyze_module
from kutta.analysis import figures, tables
from kutta.analysis.analyze import ANALYSES, Request, analyze
from kutta.analysis.blocks import measure_blocks
from kutta.analysis.inference import measure_inference
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
    subject.run.metrics.unlink()
    for analysis in ANALYSES.values():
        result = analysis.measure(subject, no_track)
        assert [table.row_count for table in analysis.tabulate(result)]
        figure = Figure()
        analysis.draw(figure, result)
        assert len(figure.axes) >= len(stacks_of(subject.model))


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
        ({"what": ["weather"]}, "there are truncation, blocks, gradients, embedding, inference"),
        ({"methods": ["leapfrgo"]}, "did you mean leapfrog"),
        ({"methods": ["custom"]}, "'custom' needs a table"),
        ({"what": ["blocks"], "methods": ["rk4"]}, "--method is for the analysis inference"),
        ({"what": ["blocks"], "bleu": True}, "--bleu is for the analysis inference"),
        ({"sentences": 0}, "at least 1"),
        ({"test": "nothing"}, "The text of 'nothing' is not in"),
        ({"data_dir": "nowhere"}, "There is no folder nowhere"),
        ({"run": Path("nowhere")}, "There is no folder nowhere"),
        ({"device": "abacus"}, "abacus"),
        ({"out": Path(__file__)}, "choose another --out"),
    ],
)
def test_wrong_wishes(toy_run: Path, tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    request = Request(**({"run": toy_run, "out": tmp_path / "out"} | change))
    with pytest.raises(InputError, match=sentence):
        analyze(request, QUIET)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run directory"):
        analyze(Request(tmp_path), QUIET)


def test_a_run_that_is_not_trained_yet(make_run: MakeRun) -> None:
    run = make_run()
    (run / "model.safetensors").unlink()
    with pytest.raises(InputError, match="training has not finished"):
        analyze(Request(run), QUIET)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"solver": "euler", "norm": "post"}, "not a step of an ODE"),
        ({"solver": "rk2", "stage_parameters": "separate"}, "its own F"),
    ],
    ids=["post-norm", "separate stages"],
)
def test_what_is_no_ode_is_left_out_or_refused(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], reason: str
) -> None:
    monkeypatch.setattr(analyze_module, "new_figure", lambda *_: nullcontext(Figure()))
    run = make_run(**settings)
    shown = io.StringIO()
    made = analyze(Request(run, sentences=1), Console(file=shown))
    assert list(made) == ["blocks", "gradients", "embedding"]
    assert "skipped: truncation, inference" in shown.getvalue()
    with pytest.raises(InputError, match=f"{reason}; choose blocks, gradients or embedding"):
        analyze(Request(run, ["truncation"]), QUIET)
    with pytest.raises(InputError, match=f"'inference' needs .* {reason}"):
        analyze(Request(run, methods=["rk4"]), QUIET)


def test_post_norm_blocks_cover_no_time(make_subject: MakeSubject) -> None:
    result = measure_blocks(make_subject(sentences=1, solver="euler", norm="post"), no_track)
    assert {row["time"] for row in result["rows"]} == {None}
    table, *_ = tables.blocks_tables(result)
    figure = Figure()
    figures.draw_blocks(figure, result)
    figure.canvas.draw()
    assert set(table.columns[1].cells) == {"-"}


def test_a_method_that_cannot_be_is_refused_before_anything_is_measured(make_run: MakeRun) -> None:
    run = make_run(solver="rk2", field="san/ffn")
    with pytest.raises(InputError, match="leapfrog looks back over whole layers"):
        analyze(Request(run, ["gradients", "inference"], methods=["rk4", "leapfrog"]), QUIET)
    assert not (run / "analysis").exists()


def test_a_checkpoint_is_told_of_in_its_run(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old checkpoints are pruned, with everything in them."""
    monkeypatch.setattr(analyze_module, "new_figure", lambda *_: nullcontext(Figure()))
    run = make_run()
    step = run / "checkpoints" / "step-8"
    step.mkdir(parents=True)
    (run / "model.safetensors").rename(step / "model.safetensors")
    analyze(Request(step, ["gradients"], sentences=1), QUIET)
    assert (run / "analysis" / "step-8" / "gradients.json").is_file()
    assert [path.name for path in step.iterdir()] == ["model.safetensors"]


WIDE: dict[str, dict[str, Any]] = {
    "truncation": {"view": "block", "method": "own", "span": 1.9876, "error": 1.2e-5}
    | {"order": -10.24, "sentences": 1},
    "blocks": {"time": 1.9876, "state": 1234.56, "relative_step": 12.3456}
    | {"stages": [1.23e-5] * 5, "cosine_to_first": [1.0, *[-1.23e-4] * 4]}
    | {"coefficients": {"gamma": [-0.234] * 5, "gamma_deviation": [1.23e-5] * 5}},
    "gradients": {"state": 1.234e-7, "parameters": 1.234e-7},
    "embedding": {"coefficient": -123.456, "low": -123.456, "high": -123.456}
    | {"others": -123.456, "excess": -123.456, "cosine": -0.123},
    "inference": {"method": "three-eighths", "substeps": 4, "time": "own", "seconds": 1234.5}
    | {
        "evaluations": {"decoder": 16.333},
        "multiply_adds": 16.0,
        "perplexity": 5e21,
        "bleu": 12.34,
    },
}


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("name", WIDE)
def test_no_number_is_cut(name: str, width: int) -> None:
    """At 80 columns the widest tables fit; with fewer they go over the edge."""
    row = {"stack": "decoder", "layer": 12, "sublayers": "san+cross+ffn"} | WIDE[name]
    rows = [row]
    if name == "truncation":
        methods = [(m, t) for t in ("1", "own") for m in ("own", "euler", "rk2", "rk4")]
        rows = [row | {"method": method, "time": time} for method, time in methods]
    console = Console(file=io.StringIO(), width=width)
    for table in ANALYSES[name].tabulate({"rows": rows, "tied": False}):
        tables.show(table, console)
        words = {word for column in table.columns for cell in column.cells for word in cell.split()}
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in shown
    assert words <= set(shown.split())
    if width == 80:
        assert max(map(len, shown.splitlines())) <= 80


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


@pytest.mark.parametrize("name", ["blocks", "gradients", "embedding", "inference"])
def test_no_analysis_has_dropout_on(make_subject: MakeSubject, name: str) -> None:
    """Though the model may come from training; nothing is random then, so all repeats itself."""
    subject = make_subject(sentences=2, dropout=0.5, attention_dropout=0.5, relu_dropout=0.5)
    measure = ANALYSES[name].measure
    if name == "inference":
        measure = partial(measure_inference, methods=())
    still = measure(subject, no_track)["rows"]
    subject.model.train()
    moving = measure(subject, no_track)["rows"]
    for row in (*still, *moving):
        row.pop("seconds", None)
    assert moving == still


def test_numbers_that_are_not_finite_are_told_and_drawn(make_subject: MakeSubject) -> None:
    """A model may blow up under another method; the rest of the result still shows."""
    subject = make_subject(sentences=1, encoder_layers=1)
    for name, broken in {
        "truncation": ("error", "order", "low", "high", "estimate"),
        "blocks": ("state", "time", "relative_step", "cosine_to_state"),
        "gradients": ("state", "parameters"),
        "embedding": ("coefficient", "low", "high", "others", "excess", "cosine"),
        "inference": ("perplexity", "nll"),
    }.items():
        result = ANALYSES[name].measure(subject, no_track)
        for row in result["rows"][1:]:
            row |= dict.fromkeys(broken)
        console = Console(file=io.StringIO(), width=120)
        for table in ANALYSES[name].tabulate(result):
            console.print(table)
        assert "-" in console.file.getvalue().split()  # type: ignore[attr-defined]
        figure = Figure()
        ANALYSES[name].draw(figure, result)
        figure.canvas.draw()
