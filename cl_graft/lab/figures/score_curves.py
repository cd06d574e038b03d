"""Figures of scores: curves along an axis, or bars side by side."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from cl_graft.metrics.figure_style import PALETTE, TEXT_COLOUR, figure_style, set_log_scale

_COLOURS = (*PALETTE, TEXT_COLOUR)
_MARKERS = "osD^vPX*"
_WIDEST = 11
"""Inches that panels side by side may take; wider, their words are too small on a page."""
_APART = 4
"""Largest ratio of the heights of two panels on the same scale."""
_INVISIBLE = 100
"""Largest ratio of two bars on a linear scale."""
_TICKS = 6
"""Places on a logarithmic axis up to which each has its number."""


@dataclass(frozen=True)
class Score:
    """One point of a figure; without `x` it has no place on the axis."""

    panel: str
    name: str
    x: float | None
    mean: float
    deviation: float


@figure_style()
def score_curves(
    scores: Sequence[Score], *, title: str, measure: str, axis: str, logarithmic: bool
) -> Figure:
    """Draw scores against the axis where there is one, else as bars.

    Beside curves, what has no place on the axis is a line across. Panels share a scale, unless
    curves would be flat beside others. Bars of which some would be invisible beside others stand on
    a logarithmic scale.
    """
    titles = list(dict.fromkeys(score.panel for score in scores))
    names = list(dict.fromkeys(score.name for score in scores))
    along = any(score.x is not None for score in scores)
    wide = max(3.6, 0.32 * (0 if along else len(names)))
    lines = math.ceil(len(titles) / max(1, int(_WIDEST / wide)))
    columns = math.ceil(len(titles) / lines)
    size = (1.2 + wide * columns, 4.6 * lines)
    figure = Figure(figsize=size)
    tops = [max(abs(s.mean) for s in scores if s.panel == own_title) for own_title in titles]
    shared = not along or max(tops) <= _APART * min(tops)
    unequal = 0 < _INVISIBLE * min(s.mean for s in scores) < max(tops)
    panels = figure.subplots(lines, columns, sharey=shared, squeeze=False).flatten()
    for panel in panels[len(titles) :]:
        panel.set_axis_off()
    for panel, own_title in zip(panels, titles, strict=False):
        for place, name in enumerate(names):
            part = [s for s in scores if s.panel == own_title and s.name == name]
            style = {"color": _COLOURS[place % len(_COLOURS)], "label": name}
            curve = [(s.x, s.mean, s.deviation) for s in part if s.x is not None]
            curve = sorted(point for point in curve if point[0] > 0 or not logarithmic)
            if curve:
                x, mean, spread = (list(side) for side in zip(*curve, strict=True))
                panel.errorbar(
                    x, mean, yerr=spread, marker=_MARKERS[place % len(_MARKERS)], capsize=2, **style
                )
            elif part and along:
                panel.axhline(part[0].mean, linestyle="--", linewidth=1, **style)
            elif part:
                panel.bar(place, part[0].mean, yerr=part[0].deviation or None, capsize=2, **style)
        panel.set(title=own_title, xlabel=axis if along else "")
        if along and logarithmic:
            set_log_scale(panel, "x")
            places = sorted({s.x for s in scores if s.x})
            if len(places) <= _TICKS:
                panel.set_xticks(places, [f"{place:g}" for place in places])
                panel.set_xticks([], minor=True)
        if not along:
            if unequal:
                set_log_scale(panel, "y")
            panel.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize="small")
        panel.grid(axis="both" if along else "y")
    for panel in panels[::columns]:
        panel.set_ylabel(measure)
    figure.suptitle(textwrap.fill(title, round(10 * figure.get_figwidth())))
    if along:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=min(2 * columns, len(labels))
        )  # fmt: skip
    return figure
