"""What all figures share: equal files, readable numbers, one legend, nothing half-written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from kutta.plotting import legend_below, new_figure, plain_numbers


def test_equal_figures_are_equal_files(tmp_path):
    for name in ("one", "two"):
        with new_figure(tmp_path / f"{name}.png", tmp_path / f"{name}.svg") as figure:
            figure.subplots().plot([1, 2], [3, 4])
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()


def test_a_figure_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(ZeroDivisionError), new_figure(tmp_path / "one.png"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


@given(low=st.floats(1e-4, 1e4), ratio=st.floats(2, 500))
@settings(deadline=None, max_examples=20)
def test_a_logarithmic_axis_has_a_few_numbers_and_no_powers(low, ratio):
    axes = Figure().subplots()
    axes.set(yscale="log", ylim=(low, low * ratio))
    plain_numbers(axes.yaxis)
    ticks = [tick for tick in axes.yaxis.get_majorticklocs() if low <= tick <= low * ratio]
    shown = axes.yaxis.get_major_formatter().format_ticks(ticks)
    assert [float(text) for text in shown] == pytest.approx(ticks)
    assert 1 <= len(ticks) <= 15


def test_a_line_in_several_panels_is_named_once():
    figure = Figure(layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, names in zip(panels, (("a", "b"), ("b", "c")), strict=True):
        for name in names:
            axes.plot([1], [1], label=name)
    legend_below(figure, panels)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
