"""The estimate: its arithmetic done again by hand, and quick enough for every table."""

import time
from pathlib import Path

import pytest

from kutta.config import Config
from kutta.model.build import build_model
from kutta.reproduce.estimate import estimate, machine_rate
from kutta.reproduce.plan import make_plan
from kutta.reproduce.preview import Preview, duration
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
        assert "Remark: The text of" in "\n".join(preview.summary(1))
        # No table takes more than a day on a core that trains at 40 GFLOP/s, no run half an hour.
        assert preview.flop / 40e9 < 86_400, plan.name
        assert max(cost.seconds(40e9) for cost in preview.left) < 30 * 60, plan.name


def test_the_paper_scale_costs_what_a_hand_calculation_says(tmp_path: Path) -> None:
    """Base: 61M parameters, 16.8M of them embeddings that serve the output layer alone."""
    plan = make_plan("methods", "paper", Path("data"), tmp_path)
    costs = {run.row: estimate(run.config) for run in plan.runs}
    tokens = 50_000 * 65_536
    assert costs["residual"].tokens == tokens
    assert costs["residual"].flop == pytest.approx(6 * 60.8e6 * tokens, rel=0.01)
    encoder = 6 * (4 * 512**2 + 2 * 512 * 2048)
    assert costs["rk4"].flop - costs["residual"].flop == pytest.approx(6 * 3 * encoder * tokens)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(42, "42 s"), (600, "10 min"), (7200, "2.0 h"), (40 * 86_400, "40.0 days")],
)
def test_a_duration_has_the_unit_a_person_would_use(seconds: float, said: str) -> None:
    assert duration(seconds) == said
