"""The benchmark of decoding: weights, turns, rows, targets and tables, with made-up programs."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kutta import Translator

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from decoders import ctranslate2, kutta, marian
from decoders.decoder import Case, Job, Model, Place, Way, arrangements
from environments import Absent
from figures import Figure
from invented import LENGTHS, WORDS, Sentences, sentences_of, write_run
from report import DECODING, draw_decoding, markdown_of_rows, page_of_decoding, table_of_scores
from speeds import (
    best,
    fastest,
    figures_of,
    percentile_95,
    quickest,
    row_of,
    times_faster,
    times_slower,
)
from translating import Effort, Entrant, Process, rounds

BASE = Case("base")
SERVER = """
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request.get("task") == "latency":
        answer = {{"seconds": [{seconds}] * len(request["sentences"])}}
    else:
        time.sleep({seconds})
        answer = {{"seconds": {seconds} * request.get("beam", 1), "tokens": 100, "setting": 32}}
    print(json.dumps(answer), flush=True)
"""


def made_up_job(source: str) -> Job:
    return Job([sys.executable, "-c", source], {}, Path())


def made_up(
    program: str,
    precision: str,
    rates: dict[int, dict[int, float]],
    waits: dict[int, list[float]],
    peak: float = 100.0,
    **other: Any,
) -> Entrant:
    way = Way(program, other.pop("case", BASE), precision, **other)
    job = Job([], {}, Path("nowhere"))
    return Entrant(way, "1.0", job, rates, waits, {4: 32, 1: 64}, [2.0], peak)


def steady(program: str, precision: str, rate: float, wait: float, **other: Any) -> Entrant:
    """Two rounds at the same speed, twice as fast without a beam."""
    rates = {4: {0: rate, 1: rate}, 1: {0: 2 * rate, 1: 2 * rate}}
    return made_up(program, precision, rates, {0: [wait], 1: [wait]}, **other)


# --- weights and sentences


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("invented")
    return {
        method: Model(Case("tiny", method), write_run(folder / method, "tiny", method))
        for method in ("residual", "rk2", "rk4")
    }


def test_all_methods_have_the_same_weights_and_nothing_ends_by_itself(
    invented: dict[str, Model],
) -> None:
    models = [model.run.load_model() for model in invented.values()]
    states = [model.state_dict() for model in models]
    assert all(state.keys() == states[0].keys() for state in states)
    assert all(torch.equal(state[key], states[0][key]) for state in states for key in state)
    assert not models[0].target_embedding.tokens.weight[:4].any()
    assert len(models[0].target_embedding.tokens.weight) == WORDS["tiny"]
    assert [m.run.config.model.solver for m in invented.values()] == ["euler", "rk2", "rk4"]


def test_sentences_are_the_same_every_time_and_have_the_lengths_that_were_asked_for() -> None:
    sentences = sentences_of("tiny", 200, 3, 20)
    assert sentences == sentences_of("tiny", 200, 3, 20)
    lengths = {len(one) for one in sentences.many}
    assert (min(lengths), max(lengths)) == LENGTHS
    assert [len(one) for one in sentences.single] == [20] * 3


def test_translations_have_the_number_of_tokens_that_is_counted(invented: dict[str, Model]) -> None:
    translator = Translator.load(invented["residual"].run.path, device="cpu")
    lines = [" ".join(one) for one in sentences_of("tiny", 3, 0, 0).many]
    found = translator.translate(lines, beam=2, min_length=6, max_length=6)
    assert [len(line.split()) for line in found] == [6] * 3


# --- programs


def place_in(folder: Path, **other: Any) -> Place:
    return Place(folder, folder / "envs", False, 2, **other)


def test_workers_and_threads_are_arranged_in_both_ways() -> None:
    assert arrangements(4) == [(4, 1), (1, 4)]
    assert arrangements(1) == [(1, 1)]
    ways = ctranslate2.ways(BASE, 2)
    assert [(way.precision, way.workers) for way in ways] == [
        ("fp32", "2 x 1"),
        ("fp32", "1 x 2"),
        ("int8", "2 x 1"),
        ("int8", "1 x 2"),
    ]


def test_what_cannot_be_measured_is_absent_with_a_reason(
    invented: dict[str, Model], tmp_path: Path
) -> None:
    place, model = place_in(tmp_path), invented["residual"]
    with pytest.raises(Absent, match="not installed"):
        ctranslate2.job(place, model, ctranslate2.ways(model.case, 2)[0])
    before = Way(kutta.TORCH, model.case, "fp32", option=kutta.BEFORE)
    with pytest.raises(Absent, match="--before COMMIT"):
        kutta.job(place, model, before)
    with pytest.raises(Absent, match=r"model\.solver = 'rk4'"):
        marian.write(invented["rk4"].run, tmp_path / "marian")
    assert not (tmp_path / "marian").exists()


def test_an_earlier_kutta_is_run_from_its_own_source_with_the_settings_that_it_knows(
    invented: dict[str, Model], tmp_path: Path
) -> None:
    way, run = Way(kutta.TORCH, BASE, "fp32", option=kutta.BEFORE), invented["residual"].run
    place = place_in(tmp_path, before=tmp_path / "old")
    package = tmp_path / "old" / "src" / "kutta"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "config.py").touch()
    with pytest.raises(Absent, match="does not name its settings"):
        kutta.job(place, invented["residual"], way)
    (package / "config.py").write_text(
        "def known_keys():\n    return ['run', 'data.source', 'model.solver', 'model.heads']\n"
    )
    job = kutta.job(place, invented["residual"], way)
    assert job.environment == {"PYTHONPATH": str(tmp_path / "old" / "src")}
    assert json.loads((job.folder / "config.json").read_text()) == {
        "run": run.config.run,
        "data": {"source": "xx"},
        "model": {"solver": "euler", "heads": run.config.model.heads},
        "decode": {},
    }
    assert (job.folder / "model.safetensors").read_bytes() == run.final_weights.read_bytes()


def test_weights_are_put_into_the_names_and_the_order_of_marian(
    invented: dict[str, Model], tmp_path: Path
) -> None:
    run = invented["rk2"].run
    marian.write(run, tmp_path / "marian")
    arrays = np.load(tmp_path / "marian" / "model.npz")
    model, lines = run.load_model(), (tmp_path / "marian" / "vocab.yml").read_text().splitlines()
    assert lines[:5] == ['"</s>": 0', '"<unk>": 1', '"<pad>": 2', '"<s>": 3', '"w0": 4']
    embedding = model.target_embedding.tokens.weight.detach().numpy()
    assert np.array_equal(arrays["Wemb"][4:], embedding[4:])
    # One block of RK2 is two layers with the same weights; a product is x W there.
    assert np.array_equal(arrays["encoder_l1_ffn_W1"], arrays["encoder_l2_ffn_W1"])
    assert np.array_equal(
        arrays["encoder_l1_ffn_W1"].T, model.state_dict()["encoder.layers.0.ffn.up.weight"]
    )
    qkv = model.state_dict()["encoder.layers.0.san.attention.qkv.weight"].view(4, 3, 32, 128)
    assert np.array_equal(arrays["encoder_l1_self_Wk"].T, qkv[:, 1].reshape(128, 128))
    config = bytes(arrays["special:model.yml"]).decode()
    assert "enc-depth: 8\ndec-depth: 4\n" in config
    assert "tied-embeddings-all: true\n" in config


# --- turns


def test_a_program_answers_and_says_why_it_ended() -> None:
    process = Process(made_up_job(SERVER.format(seconds=0.01)), [["a"]], limit=30)
    answer = process.ask({"task": "throughput", "beam": 4, "length": 25}, 30)
    assert answer == {"seconds": 0.04, "tokens": 100, "setting": 32}
    assert process.startup > 0
    assert process.peak_mb() > 1
    process.pause()
    assert process.ask({"task": "throughput", "beam": 1, "length": 25}, 30)["tokens"] == 100
    process.end()
    with pytest.raises(Absent, match=r"^ValueError: no such graph$"):
        Process(made_up_job("raise ValueError('no such graph')"), [["a"]], limit=30)
    with pytest.raises(Absent, match="no answer within 1 s"):
        Process(made_up_job("import time; time.sleep(60)"), [["a"]], limit=1)


def test_all_take_turns_and_a_failing_one_is_absent() -> None:
    source, said = SERVER.format(seconds=0.02), list[str]()
    ways = [Way(name, BASE, "fp32") for name in ("one", "two", "broken")]
    entrants = [Entrant(way, "1", made_up_job(source)) for way in ways]
    entrants[2].job = made_up_job("raise SystemExit('out of order')")
    sentences = Sentences([["a"]], [["a", "b"], ["c", "d"]])
    rounds(entrants, Effort(2, 1, 2, starts=1), sentences, said.append)
    for entrant in entrants[:2]:
        assert entrant.whole == [0, 1]
        assert entrant.rates[4][0] == pytest.approx(100 / 0.08)
        assert entrant.rates[1][1] == pytest.approx(100 / 0.02)
        assert entrant.waits[1] == [0.02, 0.02]
        assert len(entrant.startups) == 2  # one for the rounds, one for the time it takes
        assert entrant.process is None
    assert entrants[2].absent == "out of order"
    assert sum("absent" in line for line in said) == 1


def test_without_time_nothing_is_started() -> None:
    late = Entrant(Way("late", BASE, "fp32"), "1", made_up_job(SERVER.format(seconds=0.01)))
    rounds([late], Effort(2, 1, 1, until=0.0), Sentences([["a"]], [["a"]]), lambda text: None)
    assert late.absent == "no time was left"


# --- rows and targets


def test_a_row_has_medians_over_rounds_and_percentiles_over_all_sentences(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(bytes(1_500_000))
    rates = {4: {0: 10.0, 1: 30.0, 2: 20.0}, 1: {0: 50.0, 1: 70.0, 2: 60.0}}
    waits = {n: [0.1 * n + 0.01 * i for i in range(10)] for n in range(3)}
    entrant = made_up("one", "int8", rates, waits, workers="2 x 1")
    entrant.job = Job([], {}, tmp_path)
    row = row_of(entrant)
    assert row["tokens_per_second"] == {"4": 20.0, "1": 60.0}
    assert row["spread"] == {"4": [10.0, 30.0], "1": [50.0, 70.0]}
    assert row["latency_ms"] == 145.0
    assert row["latency_p95_ms"] == pytest.approx(
        1000 * np.quantile(np.arange(30) / 100, 0.95), abs=0.1
    )
    assert (row["disk_mb"], row["startup_s"], row["peak_mb"], row["rounds"]) == (1.5, 2.0, 100, 3)
    json.dumps(row)
    assert percentile_95([7.0]) == 7.0


def test_a_round_that_was_not_finished_does_not_count() -> None:
    entrant = made_up("one", "fp32", {4: {0: 10.0, 1: 99.0}, 1: {0: 20.0}}, {0: [0.1]})
    assert row_of(entrant)["tokens_per_second"] == {"4": 10.0, "1": 20.0}


def test_of_the_arrangements_each_figure_is_that_of_the_best_one() -> None:
    many = steady("it", "int8", 900.0, 0.3, workers="2 x 1", peak=300)
    one = steady("it", "int8", 700.0, 0.2, workers="1 x 2", peak=200)
    assert best([one, many]) is many
    assert quickest([one, many]) is one
    (row,) = fastest([one, many])
    assert row["tokens_per_second"] == {"4": 900.0, "1": 1800.0}
    assert (row["latency_ms"], row["latency_workers"]) == (200.0, "1 x 2")
    assert (row["workers"], row["peak_mb"]) == ("2 x 1", 300)


def test_ratios_are_taken_within_a_round() -> None:
    ours = made_up(
        "a", "fp32", {4: {0: 100.0, 1: 900.0, 2: 60.0}, 1: {}}, {0: [1, 3, 2], 1: [8], 2: [1]}
    )
    theirs = made_up("b", "fp32", {4: {0: 50.0, 1: 300.0}, 1: {}}, {0: [4], 1: [4, 5, 2]})
    assert times_faster(ours, theirs, 4) == 2.5  # the median of 2 and 3
    assert times_slower(ours, theirs) == 1.25  # of 2/4 and 8/4


def all_sides() -> list[Entrant]:
    rk2, rk4 = Case("base", "rk2"), Case("base", "rk4")
    return [
        steady("CTranslate2", "fp32", 400.0, 0.25, workers="2 x 1", peak=500),
        steady("CTranslate2", "int8", 1000.0, 0.15, workers="2 x 1", peak=300),
        steady(kutta.RUNTIME, "fp32", 420.0, 0.30, peak=450),
        steady(kutta.RUNTIME, "int8", 1200.0, 0.12, peak=330),
        steady(kutta.RUNTIME, "int8", 2100.0, 0.10, option=kutta.SHORTLIST),
        steady(kutta.RUNTIME, "int8", 1100.0, 0.13, case=rk2),
        steady(kutta.RUNTIME, "int8", 800.0, 0.15, case=rk4),
        steady(kutta.TORCH, "fp32", 340.0, 0.4),
        steady(kutta.TORCH, "fp32", 200.0, 0.6, option=kutta.BEFORE),
    ]


def test_targets_are_those_of_the_issue() -> None:
    figures, missing = figures_of("base", all_sides())
    assert missing == []
    found = {f.name: (round(f.value, 3), f.target, f.verdict) for f in figures if f.target}
    assert found == {
        "fp32, beam 4: speed / CTranslate2": (1.05, "≥ 1", "ok"),
        "fp32, beam 1: speed / CTranslate2": (1.05, "≥ 1", "ok"),
        "int8, beam 4: speed / CTranslate2": (1.2, "≥ 1.3", "MISSED"),
        "int8, beam 1: speed / CTranslate2": (1.2, "≥ 1.3", "MISSED"),
        "int8 with shortlist, beam 4: speed / CTranslate2": (2.1, "≥ 2", "ok"),
        "int8 with shortlist, beam 1: speed / CTranslate2": (2.1, "≥ 2", "ok"),
        "fp32: memory / CTranslate2": (0.9, "≤ 1", "ok"),
        "int8: latency / CTranslate2": (0.8, "≤ 0.8", "ok"),
        "int8: memory / CTranslate2": (1.1, "≤ 1", "MISSED"),
        "rk2: time / residual, Kutta runtime int8": (1.091, "≤ 1.15", "ok"),
        "rk4: time / residual, Kutta runtime int8": (1.5, "≤ 1.35", "MISSED"),
        "torch, beam 4: speed / before": (1.7, "≥ 1.7", "ok"),
        "torch, beam 1: speed / before": (1.7, "≥ 1.7", "ok"),
    }


def test_targets_without_a_runtime_are_listed_as_not_measured() -> None:
    torch_only = [e for e in all_sides() if e.way.program != kutta.RUNTIME]
    torch_only.append(steady(kutta.TORCH, "fp32", 300.0, 0.5, case=Case("base", "rk2")))
    figures, missing = figures_of("base", torch_only)
    assert [f.name for f in figures] == [
        "rk2: time / residual, Kutta torch fp32",
        "torch, beam 4: speed / before",
        "torch, beam 1: speed / before",
    ]
    assert "int8, beam 4: speed / CTranslate2" in missing
    assert "rk4: time / residual, Kutta runtime int8" in missing
    assert "fp32: latency / CTranslate2" not in missing  # it has no target
    assert figures_of("tiny", torch_only) == ([], [])  # targets are for base size


# --- tables and the page


def test_tables_and_the_chart_are_made_of_the_rows(tmp_path: Path) -> None:
    rows = fastest(all_sides())
    table = markdown_of_rows(rows, DECODING)
    assert table.count("\n") == len(rows) + 1
    assert (
        "| Kutta runtime 1.0 | base | residual | int8, shortlist | 2,100 | 4,200 | 100 |" in table
    )
    draw_decoding(rows, tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_text().startswith("<?xml")


def test_the_page_has_a_place_for_all_that_is_measured() -> None:
    page = (Path(__file__).parents[1] / "docs" / "speed.md").read_text("utf-8")
    score = {"program": "it", "version": "1", "precision": "int8", "option": "", "workers": "2 x 1"}
    score |= {"test": "test", "sentences_per_second": 10.0, "scores": {"BLEU": 30.5}}
    figure = Figure("base", "int8: latency / CTranslate2", 0.7, at_most=0.8)
    measured = {
        "rows": fastest(all_sides()),
        "scores": [score],
        "figures": [vars(figure) | {"verdict": "ok"}],
        "not_measured": ["torch, beam 4: speed / before"],
        "absent": {"base residual Marian fp32": "not installed"},
    }
    text = page_of_decoding(page, measured)
    assert "| base | int8: latency / CTranslate2 | 0.70 | ≤ 0.8 | ok |" in text
    assert "- Not measured: torch, beam 4: speed / before" in text
    assert "- base residual Marian fp32: not installed" in text
    assert "| it 1 | int8 | 2 x 1 | test | 10.0 | BLEU 30.5 |" in text
    assert table_of_scores([score]).row_count == 1
