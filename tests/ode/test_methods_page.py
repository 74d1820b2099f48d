"""docs/methods.md is true: its tables are the code's, and its examples work."""

import re
import tomllib
from pathlib import Path

import pytest

from kutta.config import ModelConfig
from kutta.ode.catalogue import gamma_table, method_table

PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_its_tables_are_up_to_date() -> None:
    assert f"<!-- methods -->\n{method_table(markdown=True)}\n<!-- /methods -->" in PAGE
    assert f"<!-- gammas -->\n{gamma_table(markdown=True)}\n<!-- /gammas -->" in PAGE


@pytest.mark.parametrize("example", examples("toml"))
def test_its_settings_are_accepted(example: str) -> None:
    assert ModelConfig(**tomllib.loads(example)["model"])


@pytest.mark.parametrize("example", examples("python"))
def test_its_python_runs(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(example, {})
    assert capsys.readouterr().out == "3 stages, order 3\n"
