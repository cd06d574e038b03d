"""Figures of a comparison: who wins for its bytes, ranks, scores, curves along the stream."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from cl_graft.lab.figures.memory_frontier import Tradeoff, memory_frontier, on_frontier
from cl_graft.lab.figures.rank_diagram import cliques, rank_diagram
from cl_graft.lab.figures.score_curves import Score, score_curves
from cl_graft.lab.figures.stream_curves import Curve, stream_curves
from cl_graft.lab.reporting.task_figures import learning_curves
from cl_graft.lab.results.task_files import PhaseCurve, TaskCurves

POINTS = {
    "large": Tradeoff(0.90, 0.01, 4e6, forgets=False),
    "small": Tradeoff(0.85, None, 1e4, forgets=False),
    "beaten": Tradeoff(0.84, 0.02, 2e4, forgets=False),
    "forgetful": Tradeoff(0.95, 0.02, 1e3, forgets=True),
    "nothing added": Tradeoff(0.60, 0.02, 0.0, forgets=True),
    "ceiling": Tradeoff(0.97, 0.0, 1e3, forgets=False, bound=True),
}


def test_on_the_frontier_is_what_none_matches_with_fewer_bytes():
    lasting = {name: POINTS[name] for name in ("large", "small", "beaten")}
    assert on_frontier(lasting) == ["small", "large"]
    equal = Tradeoff(0.85, None, 1e4, forgets=False)
    assert set(on_frontier({"one": equal, "other": equal})) == {"one", "other"}


def test_every_method_is_drawn_and_named_and_the_frontier_leaves_out_bounds_and_the_forgetful():
    axes = memory_frontier(POINTS).axes[0]
    assert {text.get_text() for text in axes.texts} == set(POINTS)
    front = next(line for line in axes.lines if line.get_label() == "frontier of these")
    assert np.asarray(front.get_xdata()).tolist() == [1e4, 4e6]
    assert np.asarray(front.get_ydata()).tolist() == [85.0, 90.0]
    labels = axes.get_legend_handles_labels()[1]
    assert set(labels) == {"frontier of these", "forgets nothing", "forgets", "bound"}


def test_names_of_methods_with_nearly_equal_scores_do_not_overlap():
    points = {f"method {n}": Tradeoff(0.8 + n / 1e4, None, 1e5, forgets=False) for n in range(8)}
    points["far"] = Tradeoff(0.5, None, 1e3, forgets=False)
    figure = memory_frontier(points)
    FigureCanvasAgg(figure).draw()
    boxes = [  # of the words alone: an annotation's own includes its line to the point
        Text.get_window_extent(text) for text in figure.axes[0].texts if text.get_text() != "far"
    ]
    boxes.sort(key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 for low, high in pairwise(boxes))


def test_runs_within_the_difference_are_joined_and_parts_of_longer_ones_are_not():
    assert cliques([1.0, 1.5, 2.2, 3.9, 4.0], 1.0) == [(0, 1), (1, 2), (3, 4)]
    assert cliques([1.0, 1.2, 1.4], 1.0) == [(0, 2)]
    assert cliques([1.0, 3.0], 1.0) == []


def test_every_method_has_a_line_best_on_top():
    ranks = {"naive": 2.5, "grafting": 1.5, "joint": 2.0}
    figure = rank_diagram(ranks, 0.6)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["grafting", "joint", "naive"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert "0.60" in figure.get_suptitle()
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in marks] == [1.5, 2.0, 2.5]
    bars = [[*line.get_ydata()] for line in axes.lines if line not in marks]
    assert bars == [[0, 1], [1, 2]]


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
        {name: Curve((values,)) for name, values in curves.items()},
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
    assert [line.get_ydata()[0] for line in right.lines] == pytest.approx([80, 90])
    assert right.axison
    alone = TaskCurves(PhaseCurve(GRAFTING.train.loss))
    assert not learning_curves({"a": alone}, title="t", measure="f1").axes[1].axison
    assert all(tick == int(tick) for tick in left.get_xticks())
