"""What all figures have in common."""

from __future__ import annotations

import math
import re

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from cl_graft.lab.figures import Score, byte_scatter, png, score_curves


def draw_bytes(sizes):
    return byte_scatter({str(k): (0.5, 0.0, k) for k in sizes}, title="t", measure="m")


def draw_many_places():
    scores = [Score("panel", "a", float(x), 0.5, 0.0) for x in range(1, 60)]
    return score_curves(scores, title="t", measure="m", axis="x", logarithmic=True)


def draw_unequal_bars():
    scores = [Score("panel", "small", None, 0.02, 0.0), Score("panel", "large", None, 300.0, 0.0)]
    return score_curves(scores, title="t", measure="m", axis="", logarithmic=False)


FIGURES = {
    "many sizes": (lambda: draw_bytes([20_000, 100_000, 40_000_000]), "x"),
    "sizes that are close": (lambda: draw_bytes([100_000, 130_000]), "x"),
    "scores at many places": (draw_many_places, "x"),
    "unequal bars": (draw_unequal_bars, "y"),
    "tiny numbers": (lambda: draw_bytes([3e-6, 2e-3]), "x"),
}


@pytest.mark.parametrize(("draw", "which"), FIGURES.values(), ids=list(FIGURES))
def test_ticks_of_a_logarithmic_axis_are_plain_numbers(draw, which):
    figure = draw()
    png(figure)
    FigureCanvasAgg(figure).draw()
    axis = getattr(figure.axes[0], f"{which}axis")
    assert axis.get_scale() == "log"
    low, high = sorted(axis.get_view_interval())
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    seen = [t.label1.get_text() for t in ticks if low <= t.get_loc() <= high]
    said = [text for text in seen if text]
    assert len(said) >= 2
    for text in said:
        assert re.fullmatch(r"[\d,]+(\.\d+)?", text)
        assert math.isfinite(float(text.replace(",", "")))
