"""The table of a reproduction, word by word: what is best, what is missing, what is said below."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from kutta.reproduce.claims import Verdict
from kutta.reproduce.plan import Plan
from kutta.reproduce.results import Results
from kutta.reproduce.table import (
    Report,
    TableRow,
    as_markdown,
    as_table,
    as_text,
    report_of,
    short_count,
    show,
)

PlanOf = Callable[..., Plan]
Pretended = Callable[[Plan, dict[str, float]], Results]

BEST = TableRow(
    "RK2", "12.00", "+2.00", "12.50", "+2.50", ("7.00", "7.25"), "3", "1.2M", True, False
)
OTHER = TableRow("Residual", "10.00", "", "99.00", "", ("6.00", "-"), "1 of 3", "1.1M", False, True)


def report(parts: dict[str, list[TableRow]], has_published: bool = True) -> Report:
    verdicts = [Verdict("RK2 is better", "holds", "12.00, 10.00"), Verdict("So", "not run", "")]
    return Report("Toy", ["chrF2", "BLEU"], parts, has_published, verdicts, ["A note."])


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_best_are_marked_and_numbers_stay_below_each_other() -> None:
    first, second = (
        line
        for line in as_text(report({"one": [BEST, OTHER]})).splitlines()
        if line.split()[:1] in (["RK2"], ["Residual"])
    )
    words = [" ".join(line.split()) for line in (first, second)]
    assert words[0] == "RK2 * 12.00 +2.00 12.50 +2.50 7.00 7.25 3 1.2M"
    assert words[1] == "Residual 10.00 * 99.00 6.00 - 1 of 3 1.1M"
    for one, other in (("12.00", "10.00"), ("12.50", "99.00"), ("1.2M", "1.1M")):
        assert first.index(one) == second.index(other)


def test_a_table_of_one_column_does_not_name_it_and_one_of_several_does() -> None:
    assert ["one"] not in rows(as_text(report({"one": [BEST]})))
    two = rows(as_text(report({"one": [BEST], "two": [OTHER]})))
    assert ["one"] in two
    assert ["two"] in two
    assert two.index(["one"]) < two.index(["two"])


def test_the_headings_say_whose_numbers_they_are() -> None:
    heads = [str(column.header).split() for column in as_table(report({"one": [BEST]})).columns]
    assert heads == [
        *([], ["chrF2,", "ours"], ["Δ"], ["paper"], ["Δ"]),
        *(["BLEU,", "ours"], ["paper"], ["seeds"], ["size"]),
    ]
    alone = as_table(report({"one": [BEST]}, has_published=False))
    assert [str(column.header).split() for column in alone.columns] == [
        *([], ["chrF2,", "ours"], ["Δ"], ["BLEU,", "ours"], ["seeds"], ["size"]),
    ]
    assert [str(next(iter(c.cells))).strip() for c in alone.columns] == [
        *("RK2", "* 12.00", "+2.00", "7.00", "3", "1.2M"),
    ]
    assert [column.justify for column in alone.columns] == ["left", *["right"] * 5]


def test_without_the_papers_numbers_every_further_metric_keeps_ours() -> None:
    line = replace(BEST, others=("7.00", "-", "8.00", "-", "9.00", "-"))
    three = replace(report({"one": [line]}, has_published=False), metrics=["a", "b", "c", "d"])
    markdown = as_markdown(three, [])
    assert "| one | a, ours | Δ | b, ours | c, ours | d, ours | seeds | parameters |" in markdown
    assert "| RK2 | **12.00** | +2.00 | 7.00 | 8.00 | 9.00 | 3 | 1.2M |" in markdown


def test_markdown_has_a_part_for_each_column_then_claims_notes_and_the_figure() -> None:
    lines = as_markdown(report({"one": [BEST], "two": [OTHER]}), ["f.png"]).split("\n")
    heading = " | chrF2, ours | Δ | paper | Δ | BLEU, ours | paper | seeds | parameters |"
    rule = "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    assert lines == [
        *("# Toy", ""),
        *("| one" + heading, rule),
        *("| RK2 | **12.00** | +2.00 | 12.50 | +2.50 | 7.00 | 7.25 | 3 | 1.2M |", ""),
        *("| two" + heading, rule),
        *("| Residual | 10.00 |  | **99.00** |  | 6.00 | - | 1 of 3 | 1.1M |", ""),
        *("| claim | verdict | our numbers |", "|---|---|---|"),
        *("| RK2 is better | holds | 12.00, 10.00 |", "| So | not run |  |", ""),
        *("A note.", "", "![Toy](f.png)", ""),
    ]


def test_markdown_without_claims_has_no_table_of_them() -> None:
    bare = Report("Toy", ["chrF2"], {}, False, [], [])
    assert as_markdown(bare, ["f.png"]) == "# Toy\n\n![Toy](f.png)\n"


def test_claims_and_notes_are_broken_between_words_and_signatures_are_not() -> None:
    verdict = Verdict("word " * 20 + "end", "does not hold", "1.00, 2.00")
    signature = "Signature: nrefs:1|case:mixed|" + "x-" * 30
    one = Report("Toy", ["chrF2"], {"one": [BEST]}, False, [verdict], [signature])
    out = io.StringIO()
    show(one, Console(file=out, width=40, color_system=None))
    shown = out.getvalue().splitlines()
    claim = shown.index(next(line for line in shown if line.startswith("Claim: ")))
    assert len(shown[claim]) <= 40
    assert shown[claim + 1].startswith("  word")
    assert signature.split()[1] in shown
    told = " ".join(" ".join(shown).split())
    assert told.count("Does not hold: 1.00, 2.00.") == 1
    assert "not run: " not in as_text(report({"one": [BEST]})).lower()


def test_lines_of_the_text_do_not_end_in_spaces() -> None:
    assert all(line == line.rstrip() for line in as_text(report({"one": [BEST]})).split("\n"))


@pytest.mark.parametrize(
    ("count", "shown"),
    [(9_949_999, "9.9M"), (9_960_000, "10.0M"), (10_000_000, "10M"), (640_000, "0.6M")],
)
def test_from_ten_millions_on_parameters_have_no_fraction(count: int, shown: str) -> None:
    assert short_count(count) == shown


# ---- what is said below ---------------------------------------------------------------------


def test_notes_say_how_to_read_the_table(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of()
    results = pretended(plan, {"rk2-one-s1": 12.0})
    results["elsewhere-s1"] = results["rk2-one-s1"].__class__(
        **results["rk2-one-s1"].to_dict() | {"signature": "of another plan"}
    )
    found = report_of(plan, results)
    assert found.title == "Toy table (scale small: toy text)"
    assert found.metrics == ["chrF2"]
    assert list(found.parts) == ["1 layer", "2 layers"]
    text = "\n".join(found.notes)
    assert found.notes[0] == "Too small to mean anything."
    assert found.notes[-1] == "Signature: metric:toy"
    assert "chrF2: higher is better" in text
    assert "±" not in text, "one seed has no deviation"
    assert "Missing: 3 of 4 runs: residual-one-s1, residual-two-s1, rk2-two-s1." in text
    assert "quoted" not in text
    assert "tokenised" not in text
    assert "The paper's numbers are those" in text
    assert "±" in "\n".join(report_of(plan_of(seeds=(1, 2)), results).notes)


def test_no_more_than_eight_missing_runs_are_named(plan_of: PlanOf) -> None:
    def missing(*seeds: int) -> str:
        return next(n for n in report_of(plan_of(seeds=seeds), {}).notes if "Missing" in n)

    eight = missing(1, 2)
    assert eight.count("-s") == 8
    assert "more" not in eight
    twelve = missing(1, 2, 3)
    assert twelve.startswith("Missing: 12 of 12 runs: residual-one-s1, rk2-one-s1, ")
    assert twelve.endswith("rk2-two-s2 and 4 more.")


def test_a_whole_table_has_nothing_missing(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of(("note = ", "# "))
    results = pretended(plan, {run.name: 1.0 for run in plan.runs})
    notes = report_of(plan, results).notes
    assert not any("Missing" in note for note in notes)
    assert notes[0].startswith("chrF2: ")


def test_the_row_that_gains_are_measured_against_is_named_where_there_is_one(
    plan_of: PlanOf,
) -> None:
    def gains(*changes: tuple[str, str]) -> list[str]:
        return [note for note in report_of(plan_of(*changes), {}).notes if "Δ" in note]

    assert gains() == ["Δ is the difference from Residual."]
    assert gains(('name = "Residual"', 'name = "Residual"\nsmall.name = "Plain"')) == [
        "Δ is the difference from Plain."
    ]
    assert gains(('against = "residual"\n', "")) == []
    third = '[rows.rk4]\nname = "RK4"\nagainst = "rk2"\nmodel = { solver = "rk4" }\n\n[rows.rk2]'
    (several,) = gains(("[rows.rk2]", third))
    assert "RK2" not in several
    assert "Residual" not in several


@pytest.mark.parametrize(("better", "said"), [("lower", "lower is"), ("neither", "neither")])
def test_the_direction_is_said(plan_of: PlanOf, better: str, said: str) -> None:
    notes = report_of(plan_of(('"higher"', f'"{better}"')), {}).notes
    direction = next(note for note in notes if note.startswith("chrF2: "))
    assert said in direction
    assert ("the best of each column is marked" in direction) == (better == "lower")


def test_equal_numbers_are_both_the_best(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of()
    scores = {"residual-one-s1": 2.0, "rk2-one-s1": 2.0, "residual-two-s1": 3.0}
    found = report_of(plan, pretended(plan, scores))
    assert [line.best for line in found.parts["1 layer"]] == [True, True]
    assert [line.published_best for line in found.parts["1 layer"]] == [False, True]
    assert [line.best for line in found.parts["2 layers"]] == [False, False], "one alone"
    assert [line.parameters for line in found.parts["2 layers"]] == ["1.2M", ""]


def test_a_column_of_another_name_here_keeps_that_of_the_paper(plan_of: PlanOf) -> None:
    plan = plan_of(('name = "2 layers"', 'name = "2 layers"\nsmall.name = "tiny"'))
    assert list(report_of(plan, {}).parts) == ["1 layer", "tiny (the paper: 2 layers)"]
