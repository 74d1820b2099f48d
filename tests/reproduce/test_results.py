"""Means, deviations and differences by independent arithmetic, and the table made of them."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kutta.errors import InputError
from kutta.reproduce.plan import Plan
from kutta.reproduce.results import (
    Cell,
    Results,
    cells_of,
    gain,
    read_results,
    run_cells,
    unfinished,
)
from kutta.reproduce.table import as_markdown, as_text, report_of, short_count

PlanOf = Callable[..., Plan]
Pretended = Callable[[Plan, dict[str, float]], Results]

SCORES = {
    "residual-one-s1": 10.0,
    "residual-one-s2": 13.0,
    "residual-one-s3": 10.0,
    "rk2-one-s1": 12.0,
    "rk2-one-s2": 12.5,
    "residual-two-s1": 20.0,
}


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9))
def test_mean_and_deviation_are_those_of_the_textbook(scores: list[float]) -> None:
    cell = Cell("row", "column", tuple(scores), len(scores), None, None)
    mean = sum(scores) / len(scores)
    squares = sum((score - mean) ** 2 for score in scores)
    assert cell.mean == pytest.approx(mean, abs=1e-9)
    assert cell.deviation == pytest.approx(math.sqrt(squares / (len(scores) - 1)), abs=1e-6)


def test_one_seed_has_no_deviation_and_none_no_mean() -> None:
    assert Cell("row", "column", (3.0,), 1, None, None).deviation is None
    assert Cell("row", "column", (3.0,), 1, None, None).mean == 3.0
    assert Cell("row", "column", (), 1, None, None).mean is None


def test_cells_gather_the_seeds_that_are_there(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of(seeds=(1, 2, 3))
    cells = cells_of(plan, pretended(plan, SCORES))
    assert cells["residual", "one"].mean == 11.0
    assert cells["residual", "one"].deviation == pytest.approx(math.sqrt(3.0))
    assert cells["rk2", "one"].scores == (12.0, 12.5)
    assert cells["rk2", "one"].planned == 3
    assert cells["rk2", "one"].published == 12.5
    assert cells["rk2", "two"].scores == ()
    assert cells["rk2", "two"].published is None
    assert gain(cells, cells["rk2", "one"], "residual", ours=True) == 1.25
    assert gain(cells, cells["rk2", "one"], "residual", ours=False) == 2.5
    assert gain(cells, cells["rk2", "two"], "residual", ours=True) is None
    assert gain(cells, cells["residual", "one"], "", ours=True) is None
    missing = [run.name for run in unfinished(plan, read_results(plan.folder))]
    assert missing == [
        *("rk2-two-s1", "residual-two-s2", "rk2-two-s2", "rk2-one-s3"),
        *("residual-two-s3", "rk2-two-s3"),
    ]


def test_the_table_sets_ours_beside_the_papers(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of(seeds=(1, 2, 3))
    report = report_of(plan, pretended(plan, SCORES))
    text, markdown = as_text(report), as_markdown(report, ["figure.png", "curves.png"])
    assert "| 1 layer | chrF2, ours | Δ | paper | Δ | seeds | parameters |" in markdown
    assert "| Residual | 11.00 ± 1.73 |  | 10.00 |  | 3 | 1.2M |" in markdown
    assert "| RK2 | **12.25 ± 0.35** | +1.25 | **12.50** | +2.50 | 2 of 3 | 1.2M |" in markdown
    assert "| RK2 | - |  | - |  | 0 of 3 |  |" in markdown
    assert "| Residual | 20.00 |  | 11.00 |  | 1 of 3 | 1.2M |" in markdown  # alone, so no best
    for picture in ("figure.png", "curves.png"):
        assert f"![Toy table (scale small: toy text)]({picture})" in markdown
    for form in (text, markdown):
        assert "Too small to mean anything." in form
        assert "Missing: 6 of 12 runs: rk2-two-s1, " in form
        assert "metric:toy" in form
        assert "Δ is the difference from Residual." in form
    row = next(line for line in text.splitlines() if "12.25" in line)
    assert " ".join(row.split()) == "RK2 * 12.25 ± 0.35 +1.25 * 12.50 +2.50 2 of 3 1.2M"


QUOTED = (
    '[rows.quoted]\nname = "Other"\nquoted = true\nsize = "62M"\npublished = { one = [99, 88] }\n'
)


def test_a_second_metric_stands_beside_the_first_and_quoted_rows_have_no_runs(
    plan_of: PlanOf, pretended: Pretended
) -> None:
    plan = plan_of(
        ('metric = "chrF2"', 'metrics = ["chrF2", "BLEU"]'),
        ("[rows.residual]", f"{QUOTED}\n[rows.residual]"),
        ("{ one = 12.5 }", "{ one = [12.5, 7.25] }"),
    )
    assert {run.row for run in plan.runs} == {"residual", "rk2"}
    results = pretended(plan, {"residual-one-s1": 10.0, "rk2-one-s1": 12.0})
    results["rk2-one-s1"].scores["BLEU"] = 7.0
    markdown = as_markdown(report_of(plan, results), "")
    assert "| chrF2, ours | Δ | paper | Δ | BLEU, ours | paper | seeds | parameters |" in markdown
    assert "| Other |  |  | **99.00** |  |  | 88.00 |  | 62M |" in markdown
    assert "| RK2 | **12.00** | +2.00 | 12.50 | +2.50 | 7.00 | 7.25 | 1 | 1.2M |" in markdown
    assert "| Residual | 10.00 |  | 10.00 |  | - | - | 1 | 1.2M |" in markdown
    assert markdown.count("| Other |") == 1, "a row is quoted where it has a number"
    assert "quoted from the paper and not run" in markdown


def test_a_score_of_tokenised_text_is_not_printed_as_one_of_raw_text(
    plan_of: PlanOf, pretended: Pretended
) -> None:
    plan = plan_of(('metric = "chrF2"', 'metrics = ["chrF2", "sacreBLEU"]'))
    results = pretended(plan, {"rk2-one-s1": 12.0})
    results["rk2-one-s1"].scores["sacreBLEU (tokenised text)"] = 41.5
    text = as_text(report_of(plan, results))
    assert "41.5" not in text
    assert "already tokenised" in text


def test_a_bar_in_a_name_is_no_border(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of(('name = "RK2"', 'name = "RK2 |F|"'), ('"1 layer"', '"1 | layer"'))
    markdown = as_markdown(report_of(plan, pretended(plan, SCORES)), "")
    assert r"| RK2 \|F\| | **" in markdown
    assert r"| 1 \| layer | chrF2, ours |" in markdown


def test_lower_may_be_better_and_neither_may_be(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of(('"higher"', '"lower"'))
    scores = {"residual-one-s1": 10.0, "rk2-one-s1": 12.0}
    markdown = as_markdown(report_of(plan, pretended(plan, scores)), "")
    assert "**10.00**" in markdown
    assert "**12" not in markdown
    plan = plan_of(('"higher"', '"neither"'))
    markdown = as_markdown(report_of(plan, pretended(plan, scores)), "")
    assert "**" not in markdown


def test_a_table_without_the_papers_numbers_has_no_place_for_them(
    plan_of: PlanOf, pretended: Pretended
) -> None:
    plan = plan_of(
        ("published = { one = 10.0, two = 11.0 }", ""), ("published = { one = 12.5 }", "")
    )
    text = as_text(report_of(plan, pretended(plan, SCORES)))
    assert "paper" not in text


def test_a_result_counts_only_with_its_model(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of()
    results = pretended(plan, {"residual-one-s1": 1.0, "rk2-one-s1": 2.0})
    assert read_results(plan.folder) == results
    (plan.folder / "runs" / "rk2-one-s1" / "model.safetensors").unlink()
    assert set(read_results(plan.folder)) == {"residual-one-s1"}


def test_before_the_first_run_has_ended_there_are_no_results(tmp_path: Path) -> None:
    assert read_results(tmp_path) == {}


@pytest.mark.parametrize("damage", ["{", "[]", '{"residual-one-s1": {"score": 1.0}}'])
def test_damaged_results_are_told(damage: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(damage)
    with pytest.raises(InputError, match="scored again, not trained again"):
        read_results(tmp_path)


def test_results_are_kept_as_they_were(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of()
    pretended(plan, {"residual-one-s1": 1 / 3})
    kept = json.loads((plan.folder / "results.json").read_text())
    assert kept["residual-one-s1"]["score"] == 1 / 3
    assert {"signature", "seconds", "parameters", "steps"} <= set(kept["residual-one-s1"])


def test_results_are_sorted_by_name(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of()
    pretended(plan, {"rk2-one-s1": 1.0, "residual-two-s1": 2.0, "residual-one-s1": 3.0})
    kept = json.loads((plan.folder / "results.json").read_text())
    assert list(kept) == ["residual-one-s1", "residual-two-s1", "rk2-one-s1"]


def test_cells_of_a_further_metric_have_its_scores_and_the_papers(
    plan_of: PlanOf, pretended: Pretended
) -> None:
    """Runs that were not scored by it are left out; a quoted row has no runs at all."""
    plan = plan_of(
        ('metric = "chrF2"', 'metrics = ["chrF2", "BLEU"]'),
        ("[rows.residual]", f"{QUOTED}\n[rows.residual]"),
        ("{ one = 12.5 }", "{ one = [12.5, 7.25] }"),
        seeds=(1, 2),
    )
    results = pretended(plan, {"rk2-one-s1": 12.0, "rk2-one-s2": 13.0})
    results["rk2-one-s2"].scores["BLEU"] = 7.0
    results["rk2-one-s2"].scores["chrF2"] = 99.0  # the first metric is the score itself
    first, second = (cells_of(plan, results, metric)["rk2", "one"] for metric in (0, 1))
    assert (first.scores, first.published, first.planned) == ((12.0, 13.0), 12.5, 2)
    assert (second.scores, second.published, second.planned) == ((7.0,), 7.25, 2)
    assert first.parameters == second.parameters == 1_234_567
    assert cells_of(plan, results)["residual", "one"].parameters is None
    assert ("quoted", "one") in cells_of(plan, results)
    assert {row for row, _ in run_cells(plan, results)} == {"residual", "rk2"}


@pytest.mark.parametrize(("count", "shown"), [(60_900_000, "61M"), (1_549_000, "1.5M")])
def test_parameters_are_written_as_papers_do(count: int, shown: str) -> None:
    assert short_count(count) == shown
