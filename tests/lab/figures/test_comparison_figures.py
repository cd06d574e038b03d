"""Figures of a comparison: scores, and curves along the stream."""

from __future__ import annotations

from itertools import pairwise

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from cl_graft.lab.figures import Score, byte_scatter, score_curves, stream_curves
from cl_graft.lab.reporting.task_figures import learning_curves
from cl_graft.lab.results.task_files import PhaseCurve, TaskCurves


def test_every_strategy_is_named_and_names_of_equal_scores_do_not_overlap():
    points = {f"method {n}": (0.8 + n / 1e4, 0.0, 1e5) for n in range(8)}
    figure = byte_scatter({**points, "far": (0.5, 0.1, 0.0)}, title="t", measure="m")
    FigureCanvasAgg(figure).draw()
    names = {text.get_text(): text for text in figure.axes[0].texts}
    assert {*names} == {*points, "far"}
    # Of the words alone: an annotation's own box includes its line to the point.
    boxes = sorted((Text.get_window_extent(names[name]) for name in points), key=lambda b: b.y0)
    assert all(low.y1 <= high.y0 for low, high in pairwise(boxes))


def _drawn(*scores):
    return score_curves(
        scores, title="Some", measure="share", axis="density", logarithmic=False
    ).axes


@pytest.mark.parametrize(("least", "scale"), [(0.005, "log"), (0.05, "linear"), (0.0, "linear")])
def test_bars_of_which_some_would_be_invisible_stand_on_a_logarithmic_scale(least, scale):
    (panel,) = _drawn(Score("a", "all", None, 1.0, 0.0), Score("a", "few", None, least, 0.0))
    assert panel.get_yscale() == scale


@pytest.mark.parametrize(("top", "shared"), [(10.0, False), (2.0, True)])
def test_curves_that_would_be_flat_beside_others_have_a_scale_of_their_own(top, shared):
    one, other = _drawn(*(
        Score(panel, "m", x, high, 0.0) for panel, high in (("a", 1.0), ("b", top)) for x in (1, 2)
    ))  # fmt: skip
    assert (one.get_ylim() == other.get_ylim()) == shared


def drawn(**curves):
    (axes,) = stream_curves(
        {name: [values] for name, values in curves.items()},
        ["a", "b"],
        title="Some",
        measure="accuracy (%)",
    ).axes
    return axes


def test_the_first_of_equal_curves_lies_on_top_and_the_others_show_around_it():
    lines = drawn(**dict.fromkeys(("grafting", "independent", "lora"), (0.9, 0.8))).get_lines()
    orders = [line.get_zorder() for line in lines]
    assert orders == sorted(orders, reverse=True)
    sizes = [line.get_markersize() for line in lines]
    assert sizes == sorted(set(sizes))
    assert [line.get_markerfacecolor() == "none" for line in lines] == [False, True, True]
    assert len({line.get_linestyle() for line in lines}) == 3


def test_a_cut_axis_says_where_it_begins_and_nothing_is_blown_up():
    assert ", axis from " in drawn(naive=(0.9, 0.6)).get_ylabel()
    flat = drawn(grafting=(0.0, 0.0))
    assert "axis from" not in flat.get_ylabel()
    low, high = flat.get_ylim()
    assert high - low == 1
    assert low < 0 < high


GRAFTING = TaskCurves(
    PhaseCurve(((1, 0.7), (2, 0.5)), ((2, 0.8),)), PhaseCurve(((1, 0.6), (2, 0.4)), ((2, 0.9),))
)


def test_losses_begin_at_zero_and_dev_scores_are_points():
    left, right = learning_curves({"a": GRAFTING}, title="t", measure="accuracy").axes
    assert left.get_ylim()[0] == 0
    assert [line.get_ydata()[0] for line in right.lines[:2]] == pytest.approx([80, 90])
    assert [list(line.get_xdata()) for line in left.lines] == [[3, 4], [1, 2], [2, 2]]
    assert right.axison
    alone = TaskCurves(PhaseCurve(GRAFTING.train.loss))
    assert not learning_curves({"a": alone}, title="t", measure="f1").axes[1].axison
    assert all(tick == int(tick) for tick in left.get_xticks())
