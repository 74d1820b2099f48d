"""The benchmark against peers: logs, turns, rows and tables, with made-up toolkits."""

import gzip
import json
import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import attention
from contest import Effort, Entrant, contest
from corpus import Corpus, unpack
from costmodel import Link, table, work_of
from costmodel import Size as Model
from environments import INSTALLED, Absent, last_line, python_of, source_of
from figures import (
    Figure,
    Row,
    fastest,
    figures_of,
    finalists,
    operations_per_token,
    row_of,
    times_faster,
    version_figures,
)
from peers import eole, fairseq, joeynmt, kutta, marian
from peers.toolkit import SIZES, Case, Division, Job, Place, Size, Toolkit, number_in
from report import bars_of, draw, joined, label_of, markdown_of_rows, page_of
from trainee import Trainee, Update, family, is_alive, memory_mb, reason_in, stat_of

from kutta.model.dropout import Dropout

TINY, BASE = SIZES
TRAINING = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("reading data", flush=True)
while True:
    time.sleep({seconds})
    print("tokens 100", flush=True)
"""


def made_up_job(source: str) -> Job:
    tokens = lambda line: int(line.split()[1]) if line.startswith("tokens") else None  # noqa: E731
    return Job([sys.executable, "-c", source], {}, tokens)


def made_up_entrant(name: str, source: str, size: Size = TINY, method: str = "euler") -> Entrant:
    place = Toolkit(name, (("it==1.0",),), (Division(),), lambda place, case: None)  # type: ignore[arg-type]
    return Entrant(place, Case(size, method, Division()), made_up_job(source))


def measured(name: str, rates: dict[int, float], peak: float, method: str = "euler") -> Entrant:
    entrant = made_up_entrant(name, "", BASE, method)
    entrant.turns = {number: [Update(round(rate), 1.0)] for number, rate in rates.items()}
    entrant.startups, entrant.peak_mb = [4.0], peak
    return entrant


CORPUS = Corpus(Path(), words=96, source_tokens=110, target_tokens=100)


# --- what the logs say


def place_in(folder: Path) -> Place:
    (folder / "vocab.txt").write_text('a\n"b\n', encoding="utf-8")
    return Place(Path("/env/bin/python"), folder, folder, threads=2)


@pytest.mark.parametrize(
    ("toolkit", "line", "tokens"),
    [
        (
            marian.TOOLKIT,
            "[2026-01-01] Ep. 1 : Up. 2 : Sen. 670 : Cost 9.26519394 * 4,830 @ 4,830 after "
            "7,962 : Time 3.99s : 1210.63 words/s : gNorm 36.0182\n",
            4830,
        ),
        (
            fairseq.TOOLKIT,
            '2026-01-01 | INFO | train_inner | {"epoch": 1, "loss": "14.1", "wps": "2303.2",'
            ' "ups": "0.59", "wpb": "3905", "bsz": "192", "num_updates": "3"}\n',
            3905,
        ),
        (
            eole.TOOLKIT,  # the mean of four micro-batches
            "[2026-01-01 10:00:00,000 INFO] Step  3/ 1000; acc: 0.0; ppl: 9620.41; lr: 1.58e-05; "
            "sents:     372; bsz:  930/ 940/93; 2364/2364 tok/s;     20 sec;\n",
            3760,
        ),
        (joeynmt.TOOLKIT, "target tokens 1770\n", 1770),
    ],
    ids=lambda value: value.name if isinstance(value, Toolkit) else None,
)
def test_target_tokens_are_read_off_the_log_of_each_peer(
    toolkit: Toolkit, line: str, tokens: int, tmp_path: Path
) -> None:
    job = toolkit.job(place_in(tmp_path), Case(TINY, "euler", Division(micro_batches=4)))
    assert job.tokens(line) == tokens
    assert job.tokens("Training started, 4,096 tokens\n") is None
    assert job.tokens("") is None


def test_the_end_of_an_epoch_of_fairseq_is_no_update() -> None:
    assert fairseq.tokens('| INFO | train | {"train_wpb": "3472.1", "train_wps": "1243"}') is None


def test_micro_batches_and_processes_divide_the_tokens_of_an_update(tmp_path: Path) -> None:
    division = Division(micro_batches=4, processes=2)
    assert str(division) == "4 x 1,024, 2 processes"
    assert str(Division(micro_batches=8, lanes=2)) == "8 x 512, 2 lanes"
    words = fairseq.TOOLKIT.job(place_in(tmp_path), Case(TINY, "euler", division)).command
    options = dict(pairwise(words))
    assert int(options["--max-tokens"]) * int(options["--update-freq"]) * 2 == 4096
    assert "--nproc-per-node=2" in words


def test_the_vocabulary_of_marian_is_quoted(tmp_path: Path) -> None:
    marian.prepare(place_in(tmp_path))
    lines = (tmp_path / "vocab.yml").read_text("utf-8").splitlines()
    assert lines == ['"</s>": 0', '"<unk>": 1', '"a": 2', r'"\"b": 3']


def test_the_config_of_kutta_is_one_that_kutta_reads(tmp_path: Path) -> None:
    from kutta.config import Config

    path = tmp_path / "config.toml"
    case = Case(BASE, "rk4+recompute", Division(micro_batches=8, lanes=2))
    path.write_text(kutta.config_of(case, tmp_path, tmp_path / "run"), encoding="utf-8")
    config = Config.load(path)
    assert (config.model.solver, config.train.recompute) == ("rk4", True)
    assert (config.train.batch_tokens, config.train.accumulate) == (4096, 1)
    assert (config.train.pieces, config.train.lanes, config.train.workers) == (8, 2, 1)


@pytest.mark.parametrize("size", [TINY, BASE], ids=lambda size: size.name)
def test_the_usual_way_of_kutta_is_what_it_chooses_by_itself(tmp_path: Path, size: Size) -> None:
    from kutta.config import Config
    from kutta.runs.division import Machine, divide

    usual, path = kutta.TOOLKIT.usual[size.name], tmp_path / "config.toml"
    text = kutta.config_of(Case(size, "euler", usual), tmp_path, tmp_path / "run")
    path.write_text(text, encoding="utf-8")
    config = Config.load(path, ["train.pieces=0", "train.lanes=0"])
    division = divide(config, torch.device("cpu"), Machine(cores=2, threads=2))
    assert (division.per_batch, division.lanes) == (usual.micro_batches, usual.lanes)


# --- a training that takes turns


def test_a_trainee_stands_still_between_its_turns_and_leaves_nothing_behind() -> None:
    trainee = Trainee(made_up_job(TRAINING.format(seconds=0.1)), limit=30)
    pids = family(trainee._process.pid)
    assert len(pids) == 2  # its child too
    assert trainee.startup > 0.1
    assert {stat_of(pid)[0] for pid in pids} == {"T"}
    updates = trainee.turn(3, limit=30)
    assert [update.tokens for update in updates] == [100] * 3
    assert all(update.seconds > 0.05 for update in updates[1:])
    assert trainee.peak_mb() == pytest.approx(sum(map(memory_mb, pids)))
    trainee.end()
    assert not any(map(is_alive, pids))


def test_a_training_that_fails_says_why_in_one_line() -> None:
    source = "print('loading', flush=True); raise ValueError('no such layer')"
    with pytest.raises(Absent, match=r"^ValueError: no such layer$"):
        Trainee(made_up_job(source), limit=30)


def test_a_training_that_hangs_is_ended() -> None:
    with pytest.raises(Absent, match="no update within 1 s"):
        Trainee(made_up_job("import time; time.sleep(60)"), limit=1)


def test_the_reason_is_the_last_error_else_the_last_line() -> None:
    assert reason_in(["OSError: a\n", "at line 3\n", "\n"]) == "OSError: a"
    assert reason_in(["bye\n", "\n"]) == "bye"
    assert last_line("") == "it ended without a word"


def test_in_a_contest_everyone_takes_turns_and_a_failing_one_is_absent() -> None:
    slow = made_up_entrant("slow", TRAINING.format(seconds=0.2))
    fast = made_up_entrant("fast", TRAINING.format(seconds=0.05))
    broken = made_up_entrant("broken", "raise SystemExit('out of order')")
    said: list[str] = []
    gemm = contest(
        [slow, broken, fast], Effort(warmup=2, updates=2, rounds=2), lambda: 100.0, said.append
    )
    assert gemm == {0: 100.0, 1: 100.0}
    assert broken.absent == "out of order"
    assert slow.rates.keys() == fast.rates.keys() == {0, 1}
    assert len(slow.startups) == 1  # it waited for its second turn
    assert 1.5 < times_faster(fast, slow) < 6
    assert all(e.trainee is None for e in (slow, broken, fast))
    assert sum("absent" in line for line in said) == 1


def test_a_contest_that_is_out_of_time_starts_nothing() -> None:
    late = made_up_entrant("late", TRAINING.format(seconds=0.1))
    contest([late], Effort(1, 1, 3, until=0.0), lambda: 100.0, lambda text: None)
    assert late.absent == "no time was left"


# --- rows and targets


def test_a_row_has_what_was_promised() -> None:
    entrant = measured("Kutta", {0: 300.0, 1: 500.0, 2: 400.0}, peak=2000.0)
    row = row_of(entrant, {0: 100.0, 1: 100.0, 2: 200.0}, CORPUS)
    operations = operations_per_token(BASE, "euler", CORPUS)
    assert row["tokens_per_second"] == 400
    assert row["spread"] == [300, 500]
    assert row["gemm_share"] == pytest.approx(300 * operations / 100e9, abs=1e-3)
    assert (row["toolkit"], row["size"], row["method"]) == ("Kutta", "base", "euler")
    assert (row["peak_mb"], row["startup_s"], row["rounds"]) == (2000, 4.0, 3)
    json.dumps(row)


def test_operations_follow_from_the_sizes() -> None:
    d, ffn, layers, words = 128, 256, 4, 100  # 96 words and 4 marks
    encoder = layers * (4 * d * d + 2 * d * ffn)
    decoder = layers * (6 * d * d + 2 * d * ffn) + words * d
    memory = layers * 2 * d * d
    expected = 6 * (1.1 * (encoder + memory) + decoder)
    assert operations_per_token(TINY, "euler", CORPUS) == pytest.approx(expected)
    twice = 6 * (1.1 * (2 * encoder + memory) + decoder)
    assert operations_per_token(TINY, "rk2", CORPUS) == pytest.approx(twice)
    again = operations_per_token(TINY, "rk4+recompute", CORPUS)
    assert again == operations_per_token(TINY, "rk4", CORPUS)


def test_the_fastest_split_of_a_toolkit_counts() -> None:
    rows: list[Row] = [
        {"toolkit": "a", "size": "tiny", "method": "euler", "tokens_per_second": 10, "split": "1"},
        {"toolkit": "a", "size": "tiny", "method": "euler", "tokens_per_second": 20, "split": "4"},
        {"toolkit": "a", "size": "base", "method": "euler", "tokens_per_second": 5, "split": "1"},
    ]
    assert [row["split"] for row in fastest(rows)] == ["4", "1"]


def test_ratios_are_taken_within_a_round() -> None:
    ours = measured("Kutta", {0: 100.0, 1: 1000.0, 2: 300.0}, 1)
    theirs = measured("other", {0: 50.0, 1: 500.0}, 1)
    assert times_faster(ours, theirs) == 2


def test_targets_are_held_against_the_best_peer_in_each_respect() -> None:
    entrants = [
        measured("Kutta", {0: 400.0}, 2000),
        measured("Kutta", {0: 100.0}, 3000, "rk4"),
        measured("Kutta", {0: 90.0}, 2400, "rk4+recompute"),
        measured("quick", {0: 320.0}, 5000),
        measured("small", {0: 200.0}, 2500),
    ]
    figures = {f.name: f for f in figures_of(BASE, entrants, CORPUS, {0: 100.0})}
    speed = figures["speed / quick base euler 4,096"]
    assert (speed.value, speed.verdict) == (1.25, "ok")
    memory = figures["4,096: peak_mb / small base euler 4,096"]
    assert (memory.value, memory.verdict) == (0.8, "ok")
    assert figures["rk4+recompute peak_mb / euler"].value == 1.2
    more = operations_per_token(BASE, "rk4", CORPUS) / operations_per_token(BASE, "euler", CORPUS)
    cost = figures["rk4 time_per_arithmetic"]
    assert cost.value == pytest.approx(4 / more)
    assert cost.verdict == "MISSED"


def test_the_best_of_each_toolkit_have_further_rounds() -> None:
    slow, fast = measured("peer", {0: 300.0}, 1), measured("peer", {0: 320.0}, 1)
    ours = [measured("Kutta", {0: 400.0}, 1, m) for m in ("euler", "rk2", "rk4+recompute")]
    assert finalists([*ours, slow, fast]) == [*ours[:2], fast]
    again = made_up_entrant("again", TRAINING.format(seconds=0.05))
    again.turns = {0: [Update(100, 1.0)]}
    gemm = contest([again], Effort(1, 1, 2), lambda: 100.0, lambda text: None, first=1)
    assert gemm.keys() == {1, 2}
    assert again.rates.keys() == {0, 1, 2}


def test_targets_are_those_of_the_usual_way_and_not_of_the_fastest() -> None:
    fast, usual = measured("Kutta", {0: 500.0}, 4000), measured("Kutta", {0: 400.0}, 2000)
    toolkit = replace(fast.toolkit, usual={"base": Division(8, lanes=2)})
    fast.toolkit = usual.toolkit = toolkit
    usual.case = replace(usual.case, division=Division(8, lanes=2))
    for ours in ([fast, usual], [usual, fast]):
        entrants = [*ours, measured("peer", {0: 320.0}, 2500)]
        figures = {f.name: f for f in figures_of(BASE, entrants, CORPUS, {0: 100.0})}
        assert figures["speed / peer base euler 4,096"].value == 1.25
        assert figures["8 x 512, 2 lanes: peak_mb / peer base euler 4,096"].verdict == "ok"
        assert figures["4,096: peak_mb / peer base euler 4,096"].verdict == ""


def test_an_earlier_version_is_compared_within_rounds() -> None:
    now = measured("Kutta", {0: 100, 1: 30}, peak=900)
    before = measured("Kutta abc", {0: 100, 1: 40, 2: 1}, peak=1000)
    speed, memory = version_figures(now, before)
    assert (speed.name, speed.value, speed.verdict) == ("speed / Kutta abc", 0.875, "MISSED")
    assert memory.value == 0.9
    assert not memory.target


def test_an_earlier_version_runs_its_own_code(tmp_path: Path) -> None:
    try:
        source = source_of("HEAD", tmp_path / "before")
    except Absent as reason:
        pytest.skip(f"no git history here: {reason}")
    assert (source / "kutta" / "__init__.py").is_file()
    with pytest.raises(Absent):
        source_of("no-such-revision", tmp_path / "other")


def test_without_peers_there_is_nothing_to_compare() -> None:
    names = [
        f.name for f in figures_of(BASE, [measured("Kutta", {0: 400.0}, 2000)], CORPUS, {0: 100.0})
    ]
    assert names == ["gemm_gflops", "gemm_share"]


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("a", "b", 1.5, at_least=1.5), "ok"),
        (Figure("a", "b", 1.49, at_least=1.5), "MISSED"),
        (Figure("a", "b", 1.06, at_most=1.05), "MISSED"),
        (Figure("a", "b", 7), ""),
    ],
)
def test_a_target_is_met_or_missed(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict


# --- environments, text, page


def test_an_environment_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "eole" / "bin").mkdir(parents=True)
    with pytest.raises(Absent, match="not installed"):
        python_of("eole", eole.TOOLKIT.install, tmp_path, install=False)
    (tmp_path / "eole" / INSTALLED).write_text('[["eole==0.0.1"]]')  # another version
    with pytest.raises(Absent, match="not installed"):
        python_of("eole", eole.TOOLKIT.install, tmp_path, install=False)
    (tmp_path / "eole" / INSTALLED).write_text(json.dumps(eole.TOOLKIT.install))
    assert python_of("eole", eole.TOOLKIT.install, tmp_path, install=False).name == "python"


def test_the_version_is_the_one_that_is_installed() -> None:
    assert re.fullmatch(r"[\d.]+", fairseq.TOOLKIT.version)
    assert number_in(r"x (\d[\d,]*)", "x 1,024") == 1024


def test_text_is_unpacked_and_its_words_counted(tmp_path: Path) -> None:
    data, text = tmp_path / "multi30k-bpe" / "en-de", tmp_path / "text"
    data.mkdir(parents=True)
    text.mkdir()
    for part in ("train", "valid"):
        (data / f"{part}.en.gz").write_bytes(gzip.compress(b"a b a\nc\n"))
        (data / f"{part}.de").write_text("a a\n\n")
    corpus = unpack(tmp_path, text)
    assert (corpus.source_tokens, corpus.target_tokens) == (6, 4)
    assert (text / "vocab.txt").read_text().split() == ["a", "b", "c"]
    assert (text / "train.de").read_text() == "a a\n\n"
    with pytest.raises(SystemExit, match="--data"):
        unpack(tmp_path / "elsewhere", text)


def some_rows() -> list[Row]:
    entrants = [
        measured("slow", {0: 100.0}, 4000),
        measured("quick", {0: 300.0}, 5000),
        measured("Kutta", {0: 400.0}, 2000),
    ]
    return [row_of(entrant, {0: 100.0}, CORPUS) for entrant in entrants]


def test_the_page_has_a_line_for_every_row_and_keeps_its_words(tmp_path: Path) -> None:
    rows = some_rows()
    measured_file = {
        "rows": rows,
        "ways": rows,
        "absent": {"other": "no wheel"},
        "figures": [
            {"case": "base", "name": "speed", "value": 1.3, "at_least": 1.15, "at_most": None}
            | {"verdict": "ok"}
        ],
    }
    marks = "".join(f"<!-- {n} -->\nold\n<!-- /{n} -->\n" for n in ("rows", "targets", "absent"))
    page = page_of("# Words\n" + marks + "More words\n", measured_file)
    assert page.startswith("# Words\n")
    assert page.endswith("More words\n")
    assert "old" not in page
    assert "| Kutta 1.0 | base | euler | 4,096 | 400 |" in page
    assert "| base | speed | 1.30 | ≥ 1.15 | ok |" in page
    assert "- other: no wheel" in page
    assert page == page_of(page, measured_file)
    assert markdown_of_rows(rows).count("\n") == len(rows) + 1


def test_runs_of_several_sizes_are_joined() -> None:
    one = {"rows": [1], "ways": [1, 2], "figures": [3], "absent": {"a": "why"}, "load": 0.1}
    two = {"rows": [4], "ways": [], "figures": [5, 6], "absent": {"b": "so"}, "load": 0.2}
    assert joined([one, two]) == {
        "rows": [1, 4],
        "ways": [1, 2],
        "figures": [3, 5, 6],
        "absent": {"a": "why", "b": "so"},
    }


def test_bars_say_what_they_are() -> None:
    ours = {"toolkit": "Kutta", "method": "rk2", "split": "4 x 1,024, 2 processes"}
    assert label_of(ours) == "Kutta rk2, 2 processes of 1,024"
    assert label_of(ours | {"split": "8 x 512"}) == "Kutta rk2, 512 at a time"
    assert label_of(ours | {"toolkit": "fairseq"}) == "fairseq, 2 processes"
    assert label_of(ours | {"split": "8 x 512, 2 lanes"}) == "Kutta rk2, 2 lanes of 512"
    assert label_of(ours | {"toolkit": "eole", "split": "4,096"}) == "eole"


def test_the_chart_puts_kutta_first_and_peers_by_speed(tmp_path: Path) -> None:
    assert [row["toolkit"] for row in bars_of(some_rows(), "base")] == ["Kutta", "quick", "slow"]
    draw(some_rows(), tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_text().startswith("<?xml")


# --- attention


@pytest.mark.parametrize("shape", attention.shapes(), ids=lambda shape: shape.name)
def test_both_ways_of_attention_do_the_same_work(
    shape: attention.Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs and the gradients of all inputs agree, with dropout out of the way."""
    monkeypatch.setattr(attention, "Dropout", lambda p: Dropout(0.0))
    work = attention.work_of(replace(shape, B=2))
    products, fused = work(attention.by_products), work(attention.by_fused_kernel)
    assert len(products) == (1 if not shape.trains else 5 if shape.relative else 4)
    for one, other in zip(products, fused, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_the_ratio_of_attention_is_that_of_the_same_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products take 1 s; the fused kernel 9 s in the turn that warms up, then 2, 3 and 4 s."""
    lengths = [1, 9, 1, 2, 1, 3, 1, 4]
    clock = iter([at for n, s in enumerate(lengths) for at in (100.0 * n, 100.0 * n + s)])
    monkeypatch.setattr(attention.time, "perf_counter", lambda: next(clock))
    shape = attention.Shape("small", 1, 2, 2, 1, 4, relative=True)
    row = attention.measure(shape, turns=3, repeats=1)
    assert (row["products_ms"], row["fused_ms"], row["ratio"]) == (1000, 3000, 3)
    last = attention.table([row]).splitlines()[-1]
    assert last == "| small | 1000.00 | 3000.00 | 3.00 | 2.00 to 4.00 |"


# --- costs on paper


@pytest.mark.parametrize(("solver", "evaluations"), [("euler", 1), ("rk2", 2), ("rk4", 4)])
def test_the_cost_model_is_that_of_the_page(solver: str, evaluations: int) -> None:
    d, f, heads, E, D, V, n, L = 64, 256, 4, 3, 2, 1000, 128, 16
    work = work_of(Model(d, f, heads, E, D, solver, tokens=n, vocabulary=V, length=L))
    s = evaluations
    linear = 6 * n * (s * E * (4 * d * d + 2 * d * f) + D * (8 * d * d + 2 * d * f) + V * d)
    # Self-attention has three products (relative positions are the third), cross-attention two.
    attention = 6 * n * d * L * (3 * s * E + 3 * D + 2 * D)
    assert work.flop == linear + attention
    again = work_of(Model(d, f, heads, E, D, solver, n, True, V, L))
    assert again.flop == pytest.approx(4 / 3 * work.flop)
    weights = heads * L
    san, cross, ffn = 7 * d + 2 * weights, 6 * d + 2 * weights, 2 * d + f
    masks = s * E * (2 * d + weights) + D * (3 * d + 2 * weights)
    assert work.kept == 4 * n * (s * E * (san + ffn) + D * (san + cross + ffn) + masks)
    assert again.kept < work.kept


def test_a_ring_sends_everything_nearly_twice() -> None:
    link = Link(bytes_per_second=100.0, latency=0.5)
    assert link.all_reduce(800.0, 1) == 0
    assert link.all_reduce(800.0, 4) == pytest.approx(2 * 3 / 4 * 800 / 100 + 2 * 3 * 0.5)


def test_the_page_has_the_predictions_of_the_model() -> None:
    page = (Path(__file__).parents[1] / "docs" / "scaling.md").read_text("utf-8")
    _, _, rest = page.partition("<!-- runs -->\n")
    assert rest.partition("\n<!-- /runs -->")[0] == table()
