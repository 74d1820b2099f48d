"""Truncation errors of real blocks, against arithmetic of another kind."""

import io
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console

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
