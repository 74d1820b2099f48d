"""The tables of the analyses, cell by cell, from numbers given here."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.table import Table

from kutta.analysis import tables

Row = dict[str, Any]
ENCODER = {"stack": "encoder", "layer": 1, "sublayers": "san+ffn"}
DECODER = {"stack": "decoder", "layer": 2, "sublayers": "ffn"}


def cells(table: Table) -> list[list[str]]:
    """Headings without line breaks, then the rows."""
    columns = [
        [str(column.header).replace("\n", " "), *(str(cell) for cell in column.cells)]
        for column in table.columns
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def made(
    tabulate: Callable[[Row], Iterator[Table]], rows: list[Row], **more: Any
) -> list[list[list[str]]]:
    return [cells(table) for table in tabulate({"rows": rows} | more)]


def error(method: str, time: str, error: float | None, order: float | None, **more: Any) -> Row:
    span = {"1": 1.0, "own": 1.875}[time]
    values = {"view": "block", "method": method, "time": time, "error": error, "order": order}
    return ENCODER | values | {"span": span, "sentences": 3} | more


def test_truncation_is_shown_over_the_time_that_a_block_covers() -> None:
    """For learned weights the own step is held against the time 1 too."""
    learned = [
        error("own", "1", 0.5, 1.0),
        error("euler", "1", 0.6, 1.01),
        error("rk2", "1", 0.07, 2.0),
        error("own", "own", 0.0123, 1.96),
        error("euler", "own", 1.25, 0.98),
        error("rk2", "own", 0.000123, None),
    ]
    plain = [
        error("own", "1", 0.25, 2.02, **DECODER),
        error("euler", "1", 0.6, 1.01, **DECODER),
        error("rk2", "1", None, None, **DECODER | {"sentences": 0}),
    ]
    first, second = made(tables.truncation_tables, [*learned, *plain])
    assert first == [
        ["block", "T", "own", "own, T=1", "euler", "rk2", "observed orders"],
        ["1 san+ffn", "1.88", "0.012", "0.5", "1.2", "0.00012", "2.0 1.0   -"],
    ]
    assert second == [
        ["block", "T", "own", "euler", "rk2", "observed orders"],
        ["2 ffn", "1.00", "0.25", "0.6", "not solved", "2.0 1.0   -"],
    ]


def test_each_view_and_block_of_truncation_has_its_own_place() -> None:
    rows = [
        error("own", "1", 0.1, 1.0, view=view, layer=layer)
        for view in ("block", "sublayer")
        for layer in (1, 2)
    ]
    found = list(tables.truncation_tables({"rows": rows}))
    assert [str(table.title).split(":")[0] for table in found] == [
        *("encoder by block", "encoder by sublayer"),
    ]
    assert [row[0] for row in cells(found[0])] == ["block", "1 san+ffn", "2 san+ffn"]


def test_blocks_show_lengths_cosines_and_coefficients() -> None:
    row = ENCODER | {
        "time": 1.234,
        "state": 12.34,
        "step": 99.0,
        "relative_step": 0.5678,
        "stages": [1.0, 0.25],
        "cosine_to_first": [1.0, -0.125],
        "cosine_to_state": 0.77,
        "coefficients": {"gamma": [0.5, 1.5], "gamma_deviation": [0.1234, 0.0]},
    }
    other = row | DECODER | {"time": None, "coefficients": {"predictor.alpha": [0.5]}}
    learned = "gamma 0.5 1.5; gamma deviation 0.123 0"
    first, second = made(tables.blocks_tables, [row, other])
    assert first == [
        ["block", "T", "|y|", "|y'-y|/|y|", "|F_i|", "cos(F1, F_i)", "coeffi- cients"],
        ["1 san+ffn", "1.23", "12.3", "0.568", "1 0.25", "-0.125", learned],
    ]
    assert second[1][1] == "-"
    assert second[1][-1] == "predictor alpha 0.5"


def test_gradients_show_the_norms_of_states_and_parameters() -> None:
    rows = [ENCODER | {"state": 0.12345, "parameters": 123456.7}]
    (table,) = made(tables.gradients_tables, rows)
    assert table == [
        ["block", "|dL/dy|", "|dL/dtheta|"],
        ["1 san+ffn", "0.1235", "1.23e+5"],
    ]


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_show_every_measure(tied: bool) -> None:
    values = {"coefficient": 0.1, "low": -0.2, "high": 0.3, "others": 0.04, "excess": 0.05}
    rows = [ENCODER | values | {"cosine": 0.6789}]
    (table,) = tables.embedding_tables({"rows": rows, "tied": tied})
    assert ("not tied" in str(table.title)) != tied
    assert cells(table) == [
        ["block", "<y,e>/<e,e>", "10%", "90%", "others", "excess", "cosine"],
        ["1 san+ffn", "0.100", "-0.200", "0.300", "0.040", "0.050", "0.679"],
    ]


def test_inference_is_shown_beside_the_trained_model() -> None:
    """Arithmetic in multiples of the trained one, evaluations of the stack that was changed."""
    trained = {"stack": "", "method": "trained", "substeps": 1, "time": "own", "seconds": 0.5}
    trained |= {"evaluations": {"encoder": 2.0, "decoder": 1.0}, "multiply_adds": 200}
    trained |= {"perplexity": 12.3456, "bleu": 31.256}
    changed = trained | {"stack": "decoder", "method": "rk4", "substeps": 2, "time": "1"}
    changed |= {"evaluations": {"encoder": 9.0, "decoder": 8.0}, "multiply_adds": 700}
    changed |= {"perplexity": 345678.9, "seconds": 1.256, "bleu": None}
    (table,) = made(tables.inference_tables, [trained, changed])
    assert table == [
        ["stack", "method", "T", "F/layer", "multiply adds", "seconds", "perplexity", "BLEU"],
        ["-", "trained", "own", "2", "x1.00", "0.50", "12.346", "31.26"],
        ["decoder", "rk4 x 2", "1", "8", "x3.50", "1.26", "3.46e+5", "-"],
    ]
    for row in (trained, changed):
        del row["bleu"]
    (table,) = made(tables.inference_tables, [trained, changed])
    assert table[0][-1] == "perplexity"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *[(99999.0, "99999.0"), (100000.0, "1e+5"), (-100000.0, "-1e+5"), (0.25, "0.2")],
        *[(None, "-"), (2.5e12, "2.5e+12")],
    ],
)
def test_large_numbers_are_short(value: float | None, shown: str) -> None:
    rows = [ENCODER | {"time": 1.0, "state": value, "relative_step": 1.0, "stages": [1.0]}]
    rows[0] |= {"cosine_to_first": [1.0], "coefficients": {}}
    (table,) = made(tables.blocks_tables, rows)
    assert table[1][2] == shown


def test_numbers_stand_to_the_right_and_names_to_the_left() -> None:
    (table,) = tables.gradients_tables({"rows": [ENCODER | {"state": 1.0, "parameters": 2.0}]})
    assert [column.justify for column in table.columns] == ["left", "right", "right"]
