"""The picture of accuracy against memory joins what nothing else beats for its bytes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from cl_graft.lab.figures.memory_frontier import Tradeoff, memory_frontier, on_frontier

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
