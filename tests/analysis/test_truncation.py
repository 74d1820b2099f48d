"""Truncation errors of real blocks, against arithmetic of another kind."""

import io
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console
from torch import Tensor

from kutta.analysis import truncation
from kutta.analysis.figures import draw_truncation
from kutta.analysis.observe import Seen, watch
from kutta.analysis.tables import truncation_tables
from kutta.analysis.truncation import measure_truncation
from kutta.ode.error import NotConverged
from tests.analysis.conftest import MakeSubject, no_track


def by_block(rows: list[dict[str, Any]], method: str, time: str = "1") -> list[dict[str, Any]]:
    return [row for row in rows if row["method"] == method and row["time"] == time]


def test_the_error_of_a_block_is_what_many_small_steps_say(
    make_subject: MakeSubject,
) -> None:
    subject = make_subject(sentences=1, solver="rk2", gamma="learned", encoder_layers=1)
    rows = [r for r in measure_truncation(subject, no_track)["rows"] if r["stack"] == "encoder"]
    seen: list[Seen] = []
    watch(subject.model.double(), subject.one_by_one(), seen.append)
    first = seen[0]
    gamma = first.solver.get_parameter("learned_gamma").detach()
    for time, span in (("1", 1.0), ("own", float(gamma.sum()))):
        y, count = first.y, 200
        with torch.no_grad():
            for _ in range(count):  # the midpoint rule, written out
                half = y + span / count / 2 * first.F(y)
                y = y + span / count * first.F(half)
        expected = float((first.after - y).norm() / (first.after - first.y).norm())
        (row,) = by_block(rows, "own", time)
        assert row["span"] == pytest.approx(span)
        assert row["error"] == pytest.approx(expected, rel=1e-3)


def test_methods_of_higher_order_miss_less(make_subject: MakeSubject) -> None:
    rows = measure_truncation(make_subject(solver="rk2"), no_track)["rows"]
    for euler, rk2, rk4, own in zip(
        *(by_block(rows, method) for method in ("euler", "rk2", "rk4", "own")), strict=True
    ):
        assert euler["error"] > rk2["error"] > rk4["error"] > 0
        assert euler["order"] == pytest.approx(1, abs=0.3)
        assert rk2["order"] == pytest.approx(2, abs=0.5)
        assert euler["estimate"] == pytest.approx(euler["error"], rel=0.5)
        assert own["reference_error"] < 1e-5
        same = rk2 if own["stack"] == "encoder" else euler
        assert own["error"] == pytest.approx(same["error"], rel=1e-9)


def test_euler_is_measured_by_block_and_by_sublayer(make_subject: MakeSubject) -> None:
    rows = by_block(measure_truncation(make_subject(solver="euler"), no_track)["rows"], "own")
    views = [(r["view"], r["stack"], r["layer"], r["sublayers"]) for r in rows]
    sublayers = {"encoder": ("san", "ffn"), "decoder": ("san", "cross", "ffn")}
    assert views == [
        *(("block", "encoder", layer, "san+ffn") for layer in (1, 2)),
        *(("sublayer", "encoder", n, part) for n in (1, 2) for part in sublayers["encoder"]),
        ("block", "decoder", 1, "san+cross+ffn"),
        *(("sublayer", "decoder", 1, part) for part in sublayers["decoder"]),
    ]


@pytest.mark.parametrize("method", ["leapfrog", "multistep", "dlcl", "pc2", "polynet"])
def test_other_methods_have_their_own_error(make_subject: MakeSubject, method: str) -> None:
    subject = make_subject(sentences=1, solver=method)
    rows = [r for r in measure_truncation(subject, no_track)["rows"] if r["stack"] == "encoder"]
    own = by_block(rows, "own")
    assert all(row["error"] > 0 for row in own)
    looks_back = method != "polynet"
    times = by_block(rows, "own", "own") or own
    assert all((row.get("order") is None) == looks_back for row in times)


def test_a_block_without_a_fine_solution_is_told_not_hidden(
    make_subject: MakeSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise NotConverged("too rough")

    monkeypatch.setattr(truncation, "solve", never)
    result = measure_truncation(make_subject(solver="rk2"), no_track)
    rows = result["rows"]
    assert rows
    assert all(row["not_converged"] == 2 and row["sentences"] == 0 for row in rows)
    assert all(row.get("error") is None and row["low"] is None for row in rows)
    console = Console(file=io.StringIO(), width=120)
    console.print(*truncation_tables(result))
    assert "not solved" in console.file.getvalue()  # type: ignore[attr-defined]
    draw_truncation(Figure(), result)


def test_the_model_itself_stays_as_it_was(make_subject: MakeSubject) -> None:
    subject = make_subject(sentences=1)
    measure_truncation(subject, no_track)
    assert {p.dtype for p in subject.model.parameters()} == {torch.float32}


# ---- rows -----------------------------------------------------------------------------------

ERRORS = [0.9, 0.1, 0.2, 4.0, 0.3]  # by sentence; their mean is 1.1
MISSING: dict[str, float | None] = {"error": None, "order": None}


def rows_of(
    make_subject: MakeSubject,
    monkeypatch: pytest.MonkeyPatch,
    found: list[dict[str, float | None] | None],
) -> list[dict[str, Any]]:
    """The rows of the encoder's first block, where every sentence has these numbers."""
    left = {"own": iter(found), "euler": iter(found)}

    def errors(seen: Seen, own_time: float) -> Iterator[tuple[str, str, Any]]:
        if (seen.place.stack, seen.place.layer) == ("encoder", 1):
            yield "own", "1", next(left["own"])
            yield "euler", "own", next(left["euler"])

    monkeypatch.setattr(truncation, "_errors", errors)
    subject = make_subject(sentences=len(found), solver="rk2", gamma="ones")
    return measure_truncation(subject, no_track)["rows"]


def test_a_row_has_the_median_and_the_10_to_90_range_of_its_sentences(
    make_subject: MakeSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 0.1 0.2 0.3 0.9 4.0: the middle one; a tenth and nine tenths of the way, 0.4 and 3.6."""
    numbers = [{"error": error, "order": 10 * error} for error in ERRORS]
    own, euler = rows_of(make_subject, monkeypatch, [*numbers, None])
    assert own["error"] == 0.3
    assert own["order"] == 3.0
    assert own["low"] == pytest.approx(0.1 + 0.4 * (0.2 - 0.1))
    assert own["high"] == pytest.approx(0.9 + 0.6 * (4.0 - 0.9))
    assert (own["sentences"], own["not_converged"]) == (5, 1)
    assert (own["method"], own["time"], own["span"]) == ("own", "1", 1.0)
    assert (euler["method"], euler["time"], euler["span"]) == ("euler", "own", 2.0)
    assert (own["view"], own["stack"], own["layer"]) == ("block", "encoder", 1)


def test_a_number_that_some_sentences_lack_is_the_median_of_the_others(
    make_subject: MakeSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [{"error": 0.2, "order": 1.0}, MISSING, {"error": 0.4, "order": None}]
    own, _ = rows_of(make_subject, monkeypatch, numbers)
    assert own["error"] == pytest.approx(0.3)
    assert own["order"] == 1.0
    assert (own["low"], own["high"]) == pytest.approx((0.22, 0.38))
    assert (own["sentences"], own["not_converged"]) == (3, 0)


def test_where_no_sentence_has_a_number_there_is_none(
    make_subject: MakeSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _ = rows_of(make_subject, monkeypatch, [MISSING])
    assert (own["error"], own["order"], own["low"], own["high"]) == (None,) * 4


def test_rows_stand_in_the_order_of_blocks_times_and_methods(make_subject: MakeSubject) -> None:
    subject = make_subject(sentences=1, solver="rk2", gamma="ones")
    result = measure_truncation(subject, no_track)
    found = [(r["stack"], r["layer"], r["time"], r["method"]) for r in result["rows"]]
    methods = ("own", "euler", "rk2", "rk4")
    encoder = [("encoder", n, t, m) for n in (1, 2) for t in ("1", "own") for m in methods]
    assert [place for place in found if place[0] == "encoder"] == encoder
    # The decoder's steps are Euler's, which cover the time 1: there is no other time to compare.
    assert {place[2] for place in found if place[0] == "decoder"} == {"1"}
    assert result["tolerance"] == 1e-7
    assert result["sentences"] == 1


def test_every_number_of_a_method_is_that_of_steps_written_out(make_subject: MakeSubject) -> None:
    subject = make_subject(sentences=1, solver="rk2", gamma="ones", encoder_layers=1)
    rows = [r for r in measure_truncation(subject, no_track)["rows"] if r["stack"] == "encoder"]
    seen: list[Seen] = []
    watch(subject.model.double(), subject.one_by_one(), seen.append)
    first = seen[0]

    @torch.no_grad()
    def walk(count: int, span: float, midpoint: bool = False) -> Tensor:
        y, h = first.y, span / count
        for _ in range(count):
            y = y + h * first.F(y + h / 2 * first.F(y) if midpoint else y)
        return y

    own_step = float((first.after - first.y).norm())
    for time, span in (("1", 1.0), ("own", 2.0)):
        exact = walk(200, span, midpoint=True)
        (row,) = by_block(rows, "euler", time)
        ends = [walk(count, span) for count in (1, 2, 4)]
        errors = [float((end - exact).norm()) / own_step for end in ends]
        assert [row[key] for key in ("error", "error_2", "error_4")] == pytest.approx(
            errors, rel=1e-3
        )
        assert row["order"] == pytest.approx(math.log2(errors[1] / errors[2]), rel=1e-3)
        # Euler's halves miss half of what the step misses: the difference, times two.
        halves = 2 * float((ends[1] - ends[0]).norm()) / own_step
        assert row["estimate"] == pytest.approx(halves, rel=1e-6)
    (own,) = by_block(rows, "own", "own")
    # RK2 with weights of one is two steps of Euler; its substeps are four and eight of them.
    two, four = (float((walk(n, 2.0) - walk(200, 2.0, True)).norm()) for n in (4, 8))
    assert own["order"] == pytest.approx(math.log2(two / four), rel=1e-3)
    assert 0 < own["reference_error"] < 1e-5
    assert own["reference_evaluations"] > 4
    assert "order" not in by_block(rows, "own", "1")[0], "a step over 2 has no order over 1"


def test_a_block_that_does_nothing_has_no_error(make_subject: MakeSubject) -> None:
    subject = make_subject(sentences=1, solver="rk2", encoder_layers=1)
    with torch.no_grad():
        for name, parameter in subject.model.named_parameters():
            if name.startswith("encoder.layers.0"):
                parameter.zero_()
    rows = [r for r in measure_truncation(subject, no_track)["rows"] if r["stack"] == "encoder"]
    (own,) = by_block(rows, "own")
    assert math.isnan(own["error"])
