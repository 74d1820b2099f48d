"""docs/faithfulness.md: what is the paper's is told apart from what comes from elsewhere."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "faithfulness.md").read_text(encoding="utf-8")
COLUMNS = ["subject", "the paper", "elsewhere", "Kutta"]
SOURCES = ("release", "ACL 2022", "PCformer", "Its release", "fairseq", "its paper", "Mikolov")


def rows() -> dict[str, list[str]]:
    """The cells of each row behind its subject."""
    lines = [line.strip("| ") for line in PAGE.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells if row != COLUMNS and not set(row[0]) <= {"-"}}


def test_all_tables_have_the_same_columns() -> None:
    heads = re.findall(r"^\| subject.*$", PAGE, flags=re.MULTILINE)
    assert set(heads) == {"| " + " | ".join(COLUMNS) + " |"}
    assert len(heads) == PAGE.count("\n|---")
    assert len(rows()) > 50
    for subject, cells in rows().items():
        assert len(cells) == 3, subject
        assert cells[0], f"{subject}: where the paper is silent, say so"
        assert cells[2], subject


def test_the_column_of_the_paper_names_no_other_source() -> None:
    for subject, (paper, _, _) in rows().items():
        for source in ("release", "ACL 2022", "PCformer", "its paper", "our ", "Kutta"):
            assert source not in paper, subject


def test_what_comes_from_elsewhere_says_from_where() -> None:
    for subject, (_, elsewhere, _) in rows().items():
        assert not elsewhere or elsewhere.startswith(SOURCES), subject
        assert not elsewhere or ":" in elsewhere, subject


@pytest.mark.parametrize(
    ("subject", "figures"),
    [
        ("relative positions", ["8", "key"]),
        ("Adam", ["1e-8"]),
        ("warm-up", ["16,000", "8,000", "1e-7"]),
        ("whose weights they are", ["one set"]),
    ],
)
def test_figures_that_are_not_in_the_paper_are_not_in_its_column(
    subject: str, figures: list[str]
) -> None:
    paper, elsewhere, _ = rows()[subject]
    for figure in figures:
        assert figure not in paper
        assert figure in elsewhere
