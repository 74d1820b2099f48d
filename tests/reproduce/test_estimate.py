"""The estimate: its arithmetic done again by hand, and quick enough for every table."""

import time
from pathlib import Path

import pytest
import torch

from kutta.config import Config
from kutta.model.transformer import build_model
from kutta.reproduce import estimate as estimate_module
from kutta.reproduce import preview as preview_module
from kutta.reproduce.estimate import estimate, machine_rate
from kutta.reproduce.plan import Plan, make_plan
from kutta.reproduce.preview import Preview, duration, previews
from kutta.reproduce.reproduction import plans_of

ROOT = Path(__file__).parents[2]


def small(*changes: str) -> Config:
    return Config.load(ROOT / "experiments" / "presets" / "multi30k-small.toml", changes)


def by_hand(config: Config, evaluations: int) -> float:
    """FLOP of a training: multiply-adds of every matrix, 2 FLOP each, three times for backward."""
    d, ffn, model, vocabulary = config.model.d_model, config.model.ffn, config.model, 4000
    attention, feed = 4 * d * d, 2 * d * ffn
    encoder = model.encoder_layers * evaluations * (attention + feed)
    memory = model.decoder_layers * 2 * d * d
    decoder = model.decoder_layers * (attention + 2 * d * d + feed)
    per_pair_of_tokens = encoder + memory + decoder + vocabulary * d
    return 6.0 * per_pair_of_tokens * config.train.max_steps * config.train.batch_tokens


@pytest.mark.parametrize(("solver", "evaluations"), [("euler", 1), ("rk2", 2), ("rk4", 4)])
def test_flop_are_those_counted_by_hand(solver: str, evaluations: int) -> None:
    config = small(f"model.solver={solver}")
    assert estimate(config).flop == by_hand(config, evaluations)


def test_more_accumulation_is_more_work() -> None:
    once, thrice = estimate(small()), estimate(small("train.accumulate=3"))
    assert thrice.flop == 3 * once.flop
    assert thrice.tokens == 3 * once.tokens == 3 * 2000 * 1024
    assert thrice.parameters == once.parameters


def test_parameters_are_those_of_the_model_that_is_built() -> None:
    config = small("model.gamma=learned", "model.solver=rk2")
    model = build_model(config.model, 4000, 4000, shared=True)
    assert estimate(config).parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("steps", "kept"), [(100, 0), (200, 1), (900, 4), (2000, 5)], ids="{} steps".format
)
def test_disk_is_for_the_model_its_checkpoints_and_twice_both_moments(
    steps: int, kept: int
) -> None:
    """Four bytes a parameter; there are no more checkpoints than were saved, nor than are kept."""
    config = small("train.save_every=200", f"train.max_steps={steps}", "train.keep_last=5")
    found = estimate(config)
    assert found.disk == 4 * found.parameters * (1 + kept + 2 * 2)
    assert found.steps == steps
    assert found.gpu_seconds() == found.flop / 40e12


@pytest.mark.parametrize(
    ("precision", "bf16", "gain"),
    [("mixed", True, 2), ("mixed", False, 1), ("bf16", False, 2), ("fp32", True, 1)],
)
def test_a_core_is_twice_as_fast_in_bf16(
    monkeypatch: pytest.MonkeyPatch, precision: str, bf16: bool, gain: int
) -> None:
    machine(monkeypatch, gpu=False, bf16=bf16, rate=1e9)
    found = estimate(small(f"train.precision={precision}"))
    assert found.cpu_gain == gain
    assert found.cpu_seconds(5e9) == pytest.approx(found.flop / (5e9 * gain))


def test_the_rate_of_the_machine_is_its_quickest_product_on_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Products of 3, 1 and 2 seconds: the second counts, 2 x 64^3 FLOP in a second."""
    ticks = iter([0.0, 0.0, 3.0, 3.0, 4.0, 4.0, 6.0, 6.5])
    monkeypatch.setattr(estimate_module.time, "perf_counter", lambda: next(ticks))
    threads: list[int] = []
    monkeypatch.setattr(torch, "mm", lambda *_: threads.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert machine_rate(6.2, size=64) == 2 * 64**3
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert threads == [1] * 4, "one to warm up, three to measure"


def test_the_machine_is_measured_in_a_moment() -> None:
    started = time.perf_counter()
    assert 1e8 < machine_rate(0.05, size=128) < 1e13
    assert time.perf_counter() - started < 5


def test_every_table_is_estimated_without_its_text(tmp_path: Path) -> None:
    plans = plans_of(["all"], "small", Path("nowhere"), tmp_path, [])
    assert len(plans) == 10
    assert "smoke" not in {plan.name for plan in plans}
    for plan in plans:
        preview = Preview(plan, 40e9)
        assert preview.flop > 0
        assert "Note: The text of" in "\n".join(preview.summary(1))
        # No table takes more than a day on a core that trains at 40 GFLOP/s, no run half an hour.
        assert preview.flop / 40e9 < 86_400, plan.name
        assert max(cost.cpu_seconds(40e9) for cost in preview.left) < 30 * 60, plan.name


def test_the_paper_scale_costs_what_a_hand_calculation_says(tmp_path: Path) -> None:
    """Base: 61M parameters, 16.8M of them embeddings that serve the output layer alone."""
    plan = make_plan("methods", "paper", Path("data"), tmp_path)
    costs = {run.row: estimate(run.config) for run in plan.runs}
    tokens = 50_000 * 65_536
    assert costs["residual"].tokens == tokens
    assert costs["residual"].flop == pytest.approx(6 * 60.8e6 * tokens, rel=0.01)
    encoder = 6 * (4 * 512**2 + 2 * 512 * 2048)
    assert costs["rk4"].flop - costs["residual"].flop == pytest.approx(6 * 3 * encoder * tokens)


# ---- the paper's scale on a CPU -------------------------------------------------------------


def machine(monkeypatch: pytest.MonkeyPatch, *, gpu: bool, bf16: bool, rate: float) -> None:
    """A machine with or without a GPU, whose cores do `rate` FLOP/s in a matrix product."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": bf16})
    monkeypatch.setattr(preview_module, "machine_rate", lambda: rate)


def ptb_flop(seeds: int) -> float:
    """All runs of the table by hand: 10,000 words, 1 and 2 layers, 20 epochs of 230 updates."""
    layer, output = 4 * 512**2 + 2 * 512 * 2048, 10_000 * 512
    evaluations = 1 + 2 + 2 + 2 + 4  # residual, three RK2 rows, RK4
    multiply_adds = (1 + 2) * evaluations * layer + 10 * output
    return 6.0 * multiply_adds * 4_600 * 4_096 * seeds


@pytest.fixture
def ptb(tmp_path: Path) -> Plan:
    return make_plan("ptb", "paper", Path("nowhere"), tmp_path, [1])


@pytest.mark.parametrize(
    ("bf16", "rate", "jobs", "said"),
    [
        (True, 100e9, 2, "about 24.3 h with 2 at a time"),
        (False, 100e9, 2, "about 48.7 h with 2 at a time"),
        (False, 10e9, 1, "about 40.6 days with 1 at a time"),
        (False, 0.1e9, 1, "about 11.1 years with 1 at a time"),
    ],
)
def test_the_treebank_at_the_paper_s_scale_is_a_day_s_work_for_two_cores(
    ptb: Plan, monkeypatch: pytest.MonkeyPatch, bf16: bool, rate: float, jobs: int, said: str
) -> None:
    """Training does half of the rate, and twice as much in bf16."""
    machine(monkeypatch, gpu=False, bf16=bf16, rate=rate)
    (preview,) = previews([ptb])
    assert preview.flop == ptb_flop(seeds=1)
    seconds = ptb_flop(seeds=1) / (rate / 2 * (2 if bf16 else 1))
    assert sum(run["seconds"] for run in preview.to_dict()["runs"]) == pytest.approx(seconds)
    assert f"about {duration(seconds / jobs)} with" in said
    (note,) = [line for line in preview.summary(jobs) if "no GPU" in line]
    assert note.startswith(f"Note: this machine has no GPU; on its CPU it takes {said}, less")
    assert f"50% of the {rate / 1e9:.0f} GFLOP/s" in note
    assert ("bf16" in note) == bf16
    assert note.count(".") - said.count(".") == 1, "one sentence"
    assert "GPU-days if a GPU sustains 40 TFLOP/s" in preview.summary(jobs)[0]


def test_where_there_is_a_gpu_nothing_is_said_of_the_cpu(
    ptb: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, gpu=True, bf16=True, rate=100e9)
    monkeypatch.setattr(preview_module, "machine_rate", lambda: pytest.fail("is not measured"))
    (preview,) = previews([ptb])
    assert not any("CPU" in line for line in preview.summary(1))
    total = sum(run["seconds"] for run in preview.to_dict()["runs"])
    assert total == pytest.approx(ptb_flop(seeds=1) / 40e12)


def test_presets_for_gpus_are_estimated_in_full_precision_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, gpu=False, bf16=True, rate=100e9)
    plan = make_plan("en-ro", "paper", Path("nowhere"), tmp_path, [1])
    assert {run.config.train.precision for run in plan.runs} == {"fp16"}
    (preview,) = previews([plan])
    cost = preview.costs["residual-en-ro-s1"]
    assert preview.seconds(cost) == cost.flop / 50e9
    note = preview.summary(1)[-1]
    assert "bf16" not in note
    assert "early" not in note


def test_the_small_scale_is_estimated_for_a_core_even_beside_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, gpu=True, bf16=True, rate=100e9)
    plans = [make_plan("ptb", scale, Path("nowhere"), tmp_path) for scale in ("small", "paper")]
    small, paper = previews(plans)
    assert (small.rate, paper.rate) == (50e9, None)
    assert "with 3 at a time, if training reaches 50% of the 100 GFLOP/s" in small.summary(3)[0]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *[(42, "42 s"), (600, "10 min"), (7200, "2.0 h"), (71.5 * 3600, "71.5 h")],
        *[(40 * 86_400, "40.0 days"), (400 * 86_400, "400 days"), (3 * 31_536_000, "3.0 years")],
        (1200 * 31_536_000, "1,200 years"),
    ],
)
def test_a_duration_has_the_unit_a_person_would_use(seconds: float, said: str) -> None:
    assert duration(seconds) == said
