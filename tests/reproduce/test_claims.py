"""Claims: which cells they compare, and the verdict by arithmetic done here."""

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from kutta.errors import InputError
from kutta.reproduce.claims import Claim, Measured, Name, judge
from kutta.reproduce.experiment import Experiment, available, find, load
from kutta.reproduce.plan import Plan
from kutta.reproduce.results import Results, verdicts_of
from kutta.reproduce.table import as_markdown, as_text, report_of

CELLS = [("residual", "1"), ("rk2", "1"), ("residual", "2"), ("rk2", "2"), ("rk4", "2")]
CLAIM = """
[[claims]]
says = "RK2 is better than residual"
cells = ["rk2"]
are = "better"
than = ["residual"]

[[claims]]
says = "One layer of RK2 is better than two residual ones"
cells = ["rk2/one"]
are = "better"
than = ["residual/two"]
"""


def claim(are: str, cells: list[str], than: list[str], within: float = 0.0) -> Claim:
    return Claim.model_validate(
        {"says": "so", "are": are, "cells": cells, "than": than, "within": within}
    )


def verdict(one: Claim, numbers: dict[Name, Measured], lower: bool = False) -> str:
    return judge(one, CELLS, numbers.get, lower).word


def sure(**means: float) -> dict[Name, Measured]:
    """Means of one seed each: residual1=3.0 is the cell residual/1."""
    return {(name[:-1], name[-1]): Measured(mean, None, 1) for name, mean in means.items()}


def test_a_row_without_a_column_is_compared_within_each_column() -> None:
    pairs = claim("better", ["rk2", "rk4"], ["residual"]).pairs(CELLS)
    assert pairs == [
        (("rk2", "1"), ("residual", "1")),
        (("rk2", "2"), ("residual", "2")),
        (("rk4", "2"), ("residual", "2")),
    ]


def test_cells_of_different_columns_are_compared_where_both_are_named() -> None:
    assert claim("better", ["rk2/1"], ["residual/2"]).pairs(CELLS) == [
        (("rk2", "1"), ("residual", "2"))
    ]
    assert claim("better", ["rk2/2"], ["residual"]).pairs(CELLS) == [
        (("rk2", "2"), ("residual", "2"))
    ]


@pytest.mark.parametrize(
    ("are", "within", "lower", "difference", "word"),
    [
        ("better", 0.0, False, 0.2, "holds"),
        ("better", 0.0, False, -0.2, "does not hold"),
        ("better", 0.0, True, -0.2, "holds"),
        ("better", 0.0, True, 0.2, "does not hold"),
        ("higher", 0.0, True, 0.2, "holds"),
        ("lower", 0.0, False, 0.2, "does not hold"),
        ("lower", 0.0, False, -0.2, "holds"),
        ("near", 0.3, True, 0.2, "holds"),
        ("near", 0.3, False, -0.2, "holds"),
        ("near", 0.1, True, -0.2, "does not hold"),
        ("better", 0.0, False, 0.0, "undecided"),
    ],
)
def test_the_verdict_on_one_comparison(
    are: str, within: float, lower: bool, difference: float, word: str
) -> None:
    one = claim(are, ["rk2/1"], ["residual/1"], within)
    assert (
        verdict(
            one,
            sure(residual1=30.0, rk2_1=0.0) | {("rk2", "1"): Measured(30.0 + difference, None, 1)},
            lower,
        )
        == word
    )


@pytest.mark.parametrize(
    ("difference", "word"),
    [(0.49, "undecided"), (-0.49, "undecided"), (0.51, "holds"), (-0.51, "does not hold")],
)
def test_a_difference_within_the_deviation_of_the_seeds_is_undecided(
    difference: float, word: str
) -> None:
    """The deviation of a difference of two runs: sqrt(0.3^2 + 0.4^2) = 0.5."""
    numbers = {
        ("residual", "1"): Measured(30.0, 0.3, 3),
        ("rk2", "1"): Measured(30.0 + difference, 0.4, 3),
    }
    assert verdict(claim("better", ["rk2/1"], ["residual/1"]), numbers) == word


@pytest.mark.parametrize(
    ("difference", "word"),
    [(0.3, "holds"), (0.5, "undecided"), (1.3, "undecided"), (1.5, "does not hold")],
)
def test_near_is_undecided_where_the_limit_lies_within_the_deviation(
    difference: float, word: str
) -> None:
    """Within 0.9, give or take sqrt(0.3^2 + 0.4^2) = 0.5, on either side."""
    for sign in (1, -1):
        numbers = {
            ("residual", "1"): Measured(30.0, 0.3, 3),
            ("rk2", "1"): Measured(30.0 + sign * difference, 0.4, 3),
        }
        assert verdict(claim("near", ["rk2/1"], ["residual/1"], 0.9), numbers) == word


def test_a_verdict_names_every_comparison_that_decided_and_is_kept_as_words() -> None:
    one = claim("better", ["rk2"], ["residual"])
    numbers = sure(residual1=1.0, rk21=0.5, residual2=5.0, rk22=4.25)
    numbers["rk2", "2"] = Measured(4.25, 0.25, 2)
    found = judge(one, CELLS, numbers.get, lower_is_better=False)
    why = "rk2/1 0.50, residual/1 1.00 (one seed); rk2/2 4.25, residual/2 5.00 (one seed)"
    assert found.to_dict() == {"says": "so", "verdict": "does not hold", "why": why}
    assert judge(one, CELLS, {}.get, lower_is_better=False).why == ""


def test_a_cell_is_not_compared_with_itself() -> None:
    pairs = claim("better", ["rk2/2"], ["rk2", "rk4"]).pairs(CELLS)
    assert pairs == [(("rk2", "2"), ("rk4", "2"))]
    assert claim("better", ["rk4"], ["residual/1"]).pairs(CELLS) == [
        (("rk4", "2"), ("residual", "1"))
    ]
    assert claim("better", ["rk4/1"], ["residual/1"]).pairs(CELLS) == []


def test_one_comparison_that_fails_refutes_a_claim_and_a_missing_one_leaves_it_open() -> None:
    one = claim("better", ["rk2"], ["residual"])
    good = sure(residual1=1.0, rk21=2.0)
    assert verdict(one, good) == "not run"
    assert verdict(one, good | sure(residual2=1.0, rk22=2.0)) == "holds"
    assert verdict(one, good | sure(residual2=1.0, rk22=1.0)) == "undecided"
    assert verdict(one, good | sure(residual2=1.0, rk22=0.5)) == "does not hold"
    assert verdict(one, sure(residual1=1.0, rk21=0.5)) == "does not hold"
    assert verdict(one, {}) == "not run"


def test_the_words_say_which_numbers_decided() -> None:
    one = claim("better", ["rk2"], ["residual"])
    numbers = sure(residual1=1.0, rk21=2.0, residual2=5.0, rk22=4.25)
    found = judge(one, CELLS, numbers.get, lower_is_better=False)
    assert found.why == "rk2/2 4.25, residual/2 5.00 (one seed)"
    numbers = {("residual", "1"): Measured(1.0, 0.3, 3), ("rk2", "1"): Measured(9.0, 0.4, 2)}
    found = judge(claim("better", ["rk2/1"], ["residual/1"]), CELLS, numbers.get, False)
    assert found.why == "rk2/1 9.00, residual/1 1.00 (deviation 0.50)"


# ---- the paper's own ------------------------------------------------------------------------


def as_published(experiment: Experiment) -> Callable[[Name], Measured | None]:
    """The paper's numbers in the place of ours."""

    def published(name: Name) -> Measured | None:
        row, column = name
        value = experiment.rows[row].published_at(column)
        return None if value is None else Measured(value, None, 1)

    return published


@pytest.mark.parametrize("name", sorted(available()))
def test_every_claim_holds_in_the_numbers_that_the_paper_printed(name: str) -> None:
    experiment = load(find(name))
    cells, lower = experiment.all_cells(), experiment.better == "lower"
    for one in experiment.claims:
        found = judge(one, cells, as_published(experiment), lower)
        printed = any(row.published for row in experiment.rows.values())
        assert found.word == ("holds" if printed else "not run"), one.says


def test_every_table_of_the_paper_has_its_claims() -> None:
    for name in ("main", "en-ro", "efficiency", "field", "depth", "size", "ptb"):
        assert load(find(name)).claims, name


# ---- in a reproduction ----------------------------------------------------------------------

PlanOf = Callable[..., Plan]
Pretended = Callable[[Plan, dict[str, float]], Results]
LAST = 'model = { solver = "rk2", gamma = "learned" }\npublished = { one = 12.5 }\n'


def test_table_and_json_carry_the_verdicts(plan_of: PlanOf, pretended: Pretended) -> None:
    plan = plan_of((LAST, LAST + CLAIM))
    scores = {"residual-one-s1": 10.0, "rk2-one-s1": 12.0, "residual-two-s1": 12.5}
    results = pretended(plan, scores)
    words = [found.word for found in verdicts_of(plan, results)]
    assert words == ["not run", "does not hold"]
    report = report_of(plan, results)
    assert "Claim: RK2 is better than residual. Not run." in as_text(report)
    assert "does not hold | rk2/one 12.00, residual/two 12.50 (one seed) |" in as_markdown(
        report, ["figure.png"]
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('cells = ["rk2"]', 'cells = ["rk3"]', r"claim 1 .*there is no cell 'rk3'; did you mean"),
        ('"residual/two"', '"residual/three"', "claim 2 .*there is no cell 'residual/three'"),
        ('are = "better"', 'are = "near"', "'near' needs within"),
        ('are = "better"', 'are = "best"', "best"),
        ('cells = ["rk2"]', 'cells = ["residual"]', "nothing is compared"),
    ],
)
def test_a_mistake_in_a_claim_is_one_sentence(
    plan_of: PlanOf, old: str, new: str, said: str
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        plan_of((LAST, LAST + CLAIM.replace(old, new)))
    assert "\n" not in str(caught.value)


def test_better_is_lower_where_the_table_says_so(plan_of: PlanOf, pretended: Pretended) -> None:
    """As for perplexity: the second claim, 12.0 against 12.5, holds in such a table alone."""
    scores = {"residual-one-s1": 10.0, "rk2-one-s1": 12.0, "residual-two-s1": 12.5}
    for better, word in (("lower", "holds"), ("higher", "does not hold")):
        plan = plan_of((LAST, LAST + CLAIM), ('better = "higher"', f'better = "{better}"'))
        assert verdicts_of(plan, pretended(plan, scores))[1].word == word


@pytest.mark.parametrize("empty", ["says", "cells", "than"])
def test_a_claim_has_words_and_cells(empty: str) -> None:
    values = {"says": "x", "cells": ["a"], "are": "better", "than": ["b"]}
    assert Claim.model_validate(values).within == 0
    with pytest.raises(ValidationError, match=empty):
        Claim.model_validate(values | {empty: values[empty][:0]})


def test_neither_higher_nor_lower_has_no_better(plan_of: PlanOf) -> None:
    with pytest.raises(InputError, match="write are = 'higher' or 'lower'"):
        plan_of((LAST, LAST + CLAIM), ('better = "higher"', 'better = "neither"'))
