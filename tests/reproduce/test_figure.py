"""Figures: every kind, whole and in parts; words and numbers are read off the SVG."""

import json
import re
from collections.abc import Callable

import pytest

from kutta import plotting
from kutta.plotting import COLOURS
from kutta.reproduce.figure import draw
from kutta.reproduce.plan import Plan
from kutta.reproduce.results import Results

PlanOf = Callable[..., Plan]
Pretended = Callable[[Plan, dict[str, float]], Results]
SCORES = {"residual-one-s1": 10.0, "rk2-one-s1": 12.25, "residual-two-s1": 11.0, "rk2-two-s1": 13.0}


@pytest.fixture(autouse=True)
def readable_svg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text in the SVG as text, not as outlines."""
    monkeypatch.setitem(plotting.STYLE, "svg.fonttype", "none")


def words(plan: Plan, results: Results) -> list[str]:
    png, svg = draw(plan, results)
    assert png.read_bytes().startswith(b"\x89PNG")
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg.read_text(encoding="utf-8"))


def record(plan: Plan) -> None:
    """Records of a training for every run."""
    for run in plan.runs:
        folder = plan.folder / "runs" / run.name
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            {"kind": kind, "step": step, "perplexity": 100.0 / step, "grad_norm": 1.0 / step}
            for step in range(1, 9)
            for kind in ("train", "valid")
        ]
        lines.append({"kind": "train", "step": 9, "perplexity": None, "grad_norm": None})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "metrics.jsonl").write_text(text)


@pytest.mark.parametrize(
    ("kind", "done"), [("bars", 0), ("bars", 1), ("lines", 1), ("parameters", 4), ("gradients", 4)]
)
def test_every_kind_draws_what_is_there(
    kind: str, done: int, plan_of: PlanOf, pretended: Pretended
) -> None:
    plan = plan_of(('"bars"', f'"{kind}"'))
    record(plan)
    drawn = words(plan, pretended(plan, dict(list(SCORES.items())[:done])))
    expected = "Toy table" if done == 4 else f"Toy table ({done} of 4 runs)"
    assert expected in drawn


def test_further_figures_have_the_names_of_their_kinds(
    plan_of: PlanOf, pretended: Pretended
) -> None:
    plan = plan_of(('figure = "bars"', 'figures = ["bars", "curves", "gradients"]'))
    record(plan)
    drawn = draw(plan, pretended(plan, SCORES))
    names = ["figure.png", "figure.svg", "curves.png", "curves.svg", "gradients.png"]
    assert [path.name for path in drawn] == [*names, "gradients.svg"]
    texts = [path.read_text("utf-8") for path in drawn if path.suffix == ".svg"]
    for text, label in zip(texts, ("(the axis does not start at 0)", "epoch", "step"), strict=True):
        assert label in text


def test_bars_show_ours_and_the_papers(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of()
    drawn = words(plan, pretended(plan, SCORES))
    assert {"Residual", "RK2", "12.25", "12.50", "13.00"} <= set(drawn)
    assert "1 layer, ours: toy text" in drawn
    assert "1 layer, the paper" in drawn
    assert "chrF2 (the axis does not start at 0)" in drawn


def test_lines_have_axes_and_a_legend(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of(('"bars"', '"lines"'))
    drawn = words(plan, pretended(plan, SCORES))
    assert {"layers", "chrF2", "Residual", "RK2", "1", "2", "the paper"} <= set(drawn)


def test_curves_count_in_epochs(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of(('"bars"', '"curves"'))
    record(plan)
    drawn = words(plan, pretended(plan, SCORES))
    assert {"epoch", "perplexity (dashed: training)", "RK2"} <= set(drawn)
    ticks = [float(word) for word in drawn if re.fullmatch(r"[0-9.]+", word)]
    assert 4.0 in ticks  # 8 steps, and 4 steps were 2 epochs
    assert 8.0 not in ticks


def test_equal_numbers_give_equal_files(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of()
    results = pretended(plan, SCORES)
    first = [path.read_bytes() for path in draw(plan, results)]
    assert [path.read_bytes() for path in draw(plan, results)] == first


def test_many_rows_and_equal_scores_are_no_trouble(plan_of: PlanOf, pretended: Pretended) -> None:
    rows = "".join(
        f'[rows.r{n}]\nname = "r{n}"\nmodel = {{ solver = "rk4", gamma = "tableau" }}\n'
        for n in range(len(COLOURS) + 2)
    )
    plan = plan_of(('"bars"', '"lines"'), ("[rows.rk2]", f"{rows}\n[rows.rk2]"))
    draw(plan, pretended(plan, {run.name: 0.0 for run in plan.runs}))
