"""What a finished run is remembered by: scores of files it wrote, counts of its model and data."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import sacrebleu
from rich.console import Console
from safetensors import safe_open

from kutta.config import Config
from kutta.errors import InputError
from kutta.reproduce import perform as module
from kutta.reproduce.perform import Result, main, perform
from kutta.reproduce.plan import Plan, write_plan
from kutta.runs import Run
from tests.reproduce.conftest import result

PlanOf = Callable[..., Plan]
QUIET = Console(quiet=True)


@pytest.fixture
def config(plan_of: PlanOf) -> Config:
    return plan_of().runs[0].config


def parameters_of(run: Path) -> int:
    with safe_open(run / "model.safetensors", "np") as file:
        return sum(file.get_tensor(name).size for name in file.keys())  # noqa: SIM118


def test_a_result_is_that_of_the_hypotheses_and_the_model_on_disk(config: Config) -> None:
    found = perform(config, "chrF2", QUIET)
    assert found is not None
    run, text = Path(config.run), Path(config.data.dir)
    hypotheses = (run / "hypotheses" / "test.yy").read_text().splitlines()
    references = (text / "test.yy").read_text().splitlines()
    chrf = sacrebleu.corpus_chrf(hypotheses, [references])
    assert found.score == found.scores["chrF2"] == found.score_by("chrF2")
    assert found.score == pytest.approx(chrf.score)
    sacre = sacrebleu.corpus_bleu(hypotheses, [references], force=True)
    assert found.score_by("sacreBLEU") == pytest.approx(sacre.score)
    assert found.score_by("ROUGE") is None
    assert set(found.scores) == set(found.signatures) == {"BLEU", "sacreBLEU", "chrF2"}
    assert found.signature == found.signatures["chrF2"]
    assert found.signatures["chrF2"].startswith("nrefs:1|case:mixed|")
    assert found.run.startswith(Run.load(run).signature)
    assert "|beam:2|" in found.run
    assert found.parameters == parameters_of(run)
    assert (found.steps, found.from_step) == (4, 0)
    again = perform(config, "chrF2", QUIET)
    assert again is not None
    assert again.from_step == 4, "nothing was left to train"
    assert replace(again, from_step=0, seconds=found.seconds) == found
    with pytest.raises(InputError, match="perplexity"):
        perform(config, "perplexity", QUIET)


def test_epochs_are_steps_by_the_batches_that_the_text_fills(config: Config) -> None:
    """120 pairs in batches of so many tokens that one holds all: a step of two is two epochs."""
    settings = {"batch_tokens": 4000, "accumulate": 2, "max_steps": 3, "save_every": 3}
    train = config.train.model_copy(update=settings | {"pieces": 1})
    data = config.data.model_copy(update={"test": ["test", "valid"]})
    found = perform(config.model_copy(update={"train": train, "data": data}), "chrF2", QUIET)
    assert found is not None
    assert (found.steps, found.epochs) == (3, 6.0)
    scored = [path.name for path in (Path(config.run) / "hypotheses").iterdir()]
    assert scored == ["test.yy"], "of several test sets the first decides, alone"


# ---- metrics that training wrote down -------------------------------------------------------


def record(kind: str, step: int, **values: float | None) -> dict[str, Any]:
    return {"kind": kind, "step": step, "perplexity": None, "grad_norm": None} | values


RECORDS = [
    record("train", 1, perplexity=900.0, grad_norm=50.0),
    record("train", 2, perplexity=90.0, grad_norm=2.0),
    record("valid", 2, perplexity=70.0),
    record("train", 3, perplexity=80.0, grad_norm=1.0),
    record("train", 4, perplexity=60.0, grad_norm=3.0),
    record("valid", 4, perplexity=40.0),
    record("train", 5, perplexity=50.0, grad_norm=None),
    record("valid", 6, perplexity=45.0),
    record("train", 6, perplexity=30.0, grad_norm=4.0),
    record("valid", 8, perplexity=None),
]


@pytest.fixture
def logged(toy_run: Path, config: Config, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run that is finished, with RECORDS in its log; training it again does nothing."""
    run = Run(Path(config.run), config)
    run.path.mkdir(parents=True)
    (run.path / "config.json").write_text(config.to_json())
    for name in ("model.safetensors", "tokenizer.model"):
        (run.path / name).write_bytes((toy_run / name).read_bytes())
    run.metrics.write_text("".join(json.dumps(one) + "\n" for one in RECORDS))
    ended = type("Outcome", (), {"ended": "finished", "step": 8})

    def trained(given: Config, console: Console) -> Any:
        assert (given, console) == (config, QUIET)
        return ended

    monkeypatch.setattr(module, "train", trained)
    monkeypatch.setattr(module, "_steps_per_epoch", lambda _: 4.0)
    return run


@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("validation perplexity", 45.0, "last of 3 records"),  # not the best, which is 40
        ("gradient norm", 3.0, "median of 5 records"),  # of 1 2 3 4 50, whose mean is 12
    ],
)
def test_curves_report_the_last_perplexity_and_the_median_gradient_norm(
    logged: Run, metric: str, value: float, said: str
) -> None:
    found = perform(logged.config, metric, QUIET)
    assert found is not None
    assert found.score == value
    assert found.scores == {metric: value}
    assert found.signatures == {metric: found.signature}
    assert f"|{metric}|{said}|" in found.signature
    assert found.run == f"config:{logged.config.hash()}|seed:1"
    assert (found.steps, found.epochs, found.parameters) == (8, 2.0, parameters_of(logged.path))


def test_the_median_of_an_even_number_of_norms_lies_between_the_middle_two(logged: Run) -> None:
    logged.metrics.write_text("".join(json.dumps(one) + "\n" for one in RECORDS[:6]))
    found = perform(logged.config, "gradient norm", QUIET)
    assert found is not None
    assert found.score == 2.5


def test_a_log_without_the_number_is_told(logged: Run) -> None:
    logged.metrics.write_text("".join(json.dumps(one) + "\n" for one in RECORDS[:2]))
    with pytest.raises(InputError, match="validation perplexity"):
        perform(logged.config, "validation perplexity", QUIET)


def test_a_training_that_was_stopped_has_no_result(
    logged: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = type("Outcome", (), {"ended": "interrupted", "step": 5})
    monkeypatch.setattr(module, "train", lambda *_, **__: stopped)
    assert perform(logged.config, "gradient norm", QUIET) is None


# ---- in a process of its own ----------------------------------------------------------------


def program(plan: Plan, ending: Any, name: str = "rk2-one-s1") -> tuple[Any, Any, list[Any]]:
    """The exit code of the program where `perform` ends so, what it prints, and what it asked."""
    write_plan(plan)
    asked: list[Any] = []

    def pretend(config: Config, metric: str, _: Console) -> Result | None:
        asked.extend((config, metric))
        if isinstance(ending, InputError):
            raise ending
        return ending

    code, printed = None, []
    with (
        patch.object(module, "perform", pretend),
        patch.object(sys, "argv", ["perform", str(plan.folder), name]),
        patch("builtins.print", printed.append),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    return code, printed, asked


def test_the_program_makes_the_run_that_is_named_on_one_core(plan_of: PlanOf) -> None:
    plan = plan_of()
    code, (printed,), (config, metric) = program(plan, result(12.5))
    assert code is None
    assert Result(**json.loads(printed)) == result(12.5)
    assert metric == "chrF2"
    one_core = {"workers": 1, "threads": 1, "lanes": 1}
    wanted = {run.name: run.config for run in plan.runs}["rk2-one-s1"]
    assert config.run == wanted.run
    assert config.train == wanted.train.model_copy(update=one_core)


def test_the_program_says_why_it_has_no_result(plan_of: PlanOf) -> None:
    assert program(plan_of(), None)[:2] == (130, [])
    assert program(plan_of(), InputError("There is no text."))[:2] == ("There is no text.", [])
