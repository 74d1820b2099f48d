"""Columns do with rows what lists of lists do."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kutta.data.ragged import Ragged
from tests.data.writing import lists, ragged

ROWS = st.lists(st.lists(st.integers(0, 65_535), max_size=5), max_size=8)


def checked(found: Ragged) -> list[list[int]]:
    assert found.ids.dtype == np.uint16
    assert len(found) == len(found.offsets) - 1
    return lists(found)


@given(ROWS)
def test_rows_come_back(rows):
    assert checked(ragged(rows)) == rows


@given(ROWS, st.data())
def test_some_rows_are_kept(rows, data):
    kept = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    expected = [row for row, stays in zip(rows, kept, strict=True) if stays]
    assert checked(ragged(rows).where(np.array(kept, np.bool_))) == expected


@given(ROWS, st.integers(0, 6))
def test_rows_are_cut(rows, limit):
    assert checked(ragged(rows).truncate(limit)) == [row[:limit] for row in rows]
