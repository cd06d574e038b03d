"""The figure of accuracy against memory: what a task costs, and which methods do best for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cl_graft.metrics.figure_style import GREY, PALETTE, figure_style, set_log_scale

_MARKERS = {
    "forgets nothing": ("o", PALETTE[0], PALETTE[0]),
    "forgets": ("o", PALETTE[1], "white"),
    "bound": ("s", GREY, GREY),
}
"""Marker, colour and face of each kind."""

_MARGIN = 0.15
"""Share of the picture's width that stays free for names at its right."""

_BESIDE = 0.1
"""Powers of ten that the figure spans at least on each side of the methods."""

_HEIGHT, _LINE = 6.0, 0.18
"""Inches of the picture at least, and of a name."""


@dataclass(frozen=True)
class Tradeoff:
    """Accuracy (or what stands in its place), a fraction, and bytes a task of a method."""

    accuracy: float
    sd: float | None
    bytes: float
    forgets: bool
    bound: bool = False

    @property
    def kind(self) -> str:
        """Kind of marker: ``"bound"``, ``"forgets"`` or ``"forgets nothing"``."""
        if self.bound:
            return "bound"
        return "forgets" if self.forgets else "forgets nothing"


def on_frontier(points: Mapping[str, Tradeoff]) -> list[str]:
    """Return, by bytes, the methods that none matches with fewer bytes or beats with as many."""

    def beaten(own: Tradeoff, other: Tradeoff) -> bool:
        as_good = other.accuracy >= own.accuracy and other.bytes <= own.bytes
        return as_good and (other.accuracy > own.accuracy or other.bytes < own.bytes)

    kept = [
        name
        for name, own in points.items()
        if not any(beaten(own, other) for other in points.values())
    ]
    return sorted(kept, key=lambda name: points[name].bytes)


@figure_style()
def memory_frontier(
    points: Mapping[str, Tradeoff], *, title: str = "", measure: str = "average accuracy"
) -> Figure:
    """Draw accuracy against bytes a task, with the frontier of the methods that forget nothing.

    Filled are methods that forget nothing, hollow those that do; bounds are on no frontier.
    Methods that add nothing stand at the left edge.
    """
    height = max(_HEIGHT, 1.2 * _LINE * len(points))
    figure = Figure(figsize=(9, height))
    axes = figure.subplots()
    set_log_scale(axes, "x")
    least = min((p.bytes for p in points.values() if p.bytes > 0), default=1.0) / 2
    places = {name: max(p.bytes, least) for name, p in points.items()}
    first, last = (math.log10(end(places.values())) for end in (min, max))
    beside = max(0.05 * (last - first), _BESIDE)
    first, last = first - beside, last + beside
    axes.set_xlim(10**first, 10 ** (last + _MARGIN * (last - first)))
    _draw_points(axes, places, points)
    if front := on_frontier({n: p for n, p in points.items() if p.kind == "forgets nothing"}):
        xs = [places[name] for name in front]
        ys = [100 * points[name].accuracy for name in front]
        axes.step(xs, ys, where="post", color=PALETTE[0], alpha=0.5, label="frontier of these")
    _name(axes, places, points, line=_LINE / height)
    axes.set_xlabel("bytes that a task adds")
    axes.set_ylabel(f"{measure} at the end (%)")
    axes.set_title(title)
    axes.grid()
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def _draw_points(axes: Axes, places: Mapping[str, float], points: Mapping[str, Tradeoff]) -> None:
    """Draw each method's point and its standard deviation, kind after kind."""
    for kind, (marker, colour, face) in _MARKERS.items():
        own = [name for name, point in points.items() if point.kind == kind]
        for name in own:
            axes.errorbar(
                [places[name]],
                [100 * points[name].accuracy],
                yerr=[100 * (points[name].sd or 0.0)],
                fmt=marker,
                color=colour,
                markerfacecolor=face,
                ecolor=GREY,
                elinewidth=0.8,
                label=kind if name == own[0] else None,
            )


def _name(
    axes: Axes, places: Mapping[str, float], points: Mapping[str, Tradeoff], *, line: float
) -> None:
    """Write the names beside the points, moved down where two would overlap."""
    low, high = axes.get_ylim()
    left, right = (math.log10(x) for x in axes.get_xlim())
    taken: list[tuple[float, float, float]] = []  # where a name begins, ends, and its height
    for name in sorted(points, key=lambda name: -points[name].accuracy):
        begin = (math.log10(places[name]) - left) / (right - left) + 0.012
        end = begin + 0.011 * len(name)
        height = (100 * points[name].accuracy - low) / (high - low)
        while any(b < end and begin < e and abs(height - h) < line for b, e, h in taken):
            height -= line / 4
        taken.append((begin, end, height))
        axes.annotate(
            name,
            (places[name], 100 * points[name].accuracy),
            (begin, height),
            textcoords="axes fraction",
            fontsize="x-small",
            va="center",
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4},
        )
