"""The tables for people say what the code does."""

from kutta.ode import GAMMAS, METHODS
from kutta.ode.catalogue import gamma_table, method_rows, method_table


def test_the_table_of_gammas_has_a_line_for_each() -> None:
    assert [line.split()[0] for line in gamma_table().splitlines()[1:]] == list(GAMMAS)
    lines = gamma_table(markdown=True).splitlines()
    assert {line.count("|") for line in lines} == {4}
    assert [line.split("`")[1] for line in lines[2:]] == list(GAMMAS)


def test_the_table_of_methods_shows_what_the_solvers_do() -> None:
    rows = {name: cells for name, *cells in method_rows()}
    assert rows["rk4"][1:] == ["4", "4", "1/6, 1/3, 1/3, 1/6"]
    assert (rows["pc2"][2], rows["pc4"][2]) == ("3", "5")
    assert "[model.tableau]" in rows["custom"][0]


def test_the_table_of_methods_has_a_line_for_each() -> None:
    assert [line.split()[0] for line in method_table().splitlines()[1:]] == list(METHODS)
    lines = method_table(markdown=True).splitlines()
    assert {line.count("|") for line in lines} == {6}
    assert [line.split("`")[1] for line in lines[2:]] == list(METHODS)
