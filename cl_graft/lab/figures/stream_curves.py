"""Figures of strategies: curves along the stream, and scores against bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cl_graft.metrics.figure_style import GREY, PALETTE, TEXT_COLOUR, figure_style, set_log_scale

_MARKERS = "osD^vPX*"
_DASHES = ("-", "--", ":", "-.")
NAMED = 12
"""Strategies that get a colour of their own; others are drawn thin and grey."""
_TICKS = 24
_LINE = 0.18
"""Inches of a name beside a point."""


@figure_style()
def stream_curves(
    curves: Mapping[str, Sequence[Sequence[float | None]]],
    tasks: Sequence[str],
    *,
    title: str,
    measure: str,
) -> Figure:
    """Draw fractions as points along the stream: a line a strategy, the range of runs as a band.

    A strategy has a list for each run, with a value after each task; None where there is none.
    """
    figure = Figure(figsize=(6.4, 4.2))
    axes = figure.subplots()
    places = range(len(tasks))
    every = math.ceil(len(tasks) / _TICKS)
    for number, (name, runs) in enumerate(curves.items()):
        style = line_style(number)
        known = [_drop_missing(values) for values in zip(*runs, strict=True)]
        points = [(x, 100 * mean(values)) for x, values in enumerate(known) if values]
        if not points:
            continue
        label = name if number < NAMED else None
        axes.plot(*zip(*points, strict=True), label=label, markevery=every, **style)
        band = [(x, 100 * min(v), 100 * max(v)) for x, v in enumerate(known) if len(v) > 1]
        if band and number < NAMED:
            xs, low, high = zip(*band, strict=True)
            axes.fill_between(xs, low, high, color=style["color"], alpha=0.15, lw=0)
    axes.set_xticks(
        places[::every], tasks[::every], rotation=30, ha="right", rotation_mode="anchor"
    )
    axes.set(title=title, xlabel="after learning", ylabel=measure)
    mark_range(axes)
    axes.grid(axis="y")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


@figure_style()
def byte_scatter(
    points: Mapping[str, tuple[float, float, float]], *, title: str, measure: str
) -> Figure:
    """Draw each strategy's score and its deviation, fractions, against the bytes that a task adds.

    Strategies that add nothing stand at the left edge.
    """
    height = max(6.0, 1.2 * _LINE * len(points))
    figure = Figure(figsize=(9, height))
    axes = figure.subplots()
    set_log_scale(axes, "x")
    least = min((size for *_, size in points.values() if size > 0), default=1.0) / 2
    sizes = {name: max(size, least) for name, (*_, size) in points.items()}
    places = {name: (sizes[name], 100 * score) for name, (score, *_) in points.items()}
    for name, (x, y) in places.items():
        spread = 100 * points[name][1]
        axes.errorbar(x, y, yerr=spread, fmt="o", color=PALETTE[0], ecolor=GREY, elinewidth=0.8)
    low, high = min(sizes.values()), max(sizes.values())
    axes.set_xlim(low / 1.3, 1.3 * high * (high / low) ** 0.15)  # names need room at the right
    _write_names(axes, places, line=_LINE / height)
    axes.set(title=title, xlabel="bytes that a task adds", ylabel=f"{measure} at the end (%)")
    axes.grid()
    return figure


def _write_names(axes: Axes, places: Mapping[str, tuple[float, float]], *, line: float) -> None:
    """Write names beside points, moved down where two would overlap; a line is a share of axes."""
    to_axes = (axes.transData + axes.transAxes.inverted()).transform
    taken: list[tuple[float, float, float]] = []  # where a name begins, ends, and its height
    for name in sorted(places, key=lambda name: -places[name][1]):
        x, height = to_axes(places[name])
        begin, end = x + 0.012, x + 0.012 + 0.011 * len(name)
        while any(b < end and begin < e and abs(height - h) < line for b, e, h in taken):
            height -= line / 4
        taken.append((begin, end, height))
        axes.annotate(
            name,
            places[name],
            (begin, height),
            textcoords="axes fraction",
            fontsize="x-small",
            va="center",
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4},
        )


def mean_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that there are; None without any."""
    known = _drop_missing(values)
    return mean(known) if known else None


def _drop_missing(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def mark_range(axes: Axes) -> None:
    """Let a vertical axis span a point at least, and say where it does not begin at 0."""
    low, high = axes.get_ylim()
    if high - low < 1:
        low, high = ((low + high) / 2 + side for side in (-0.5, 0.5))
        axes.set_ylim(low, high)
    if low > 0:
        axes.set_ylabel(f"{axes.get_ylabel()}, axis from {low:.3g}")


def line_style(number: int) -> dict[str, Any]:
    """Return colour, marker and dashes of a line: no two of the first twelve look alike.

    The first lies on top. Those below have larger and hollow markers, which stay seen around it
    where curves coincide.
    """
    if number >= NAMED:
        return {"color": GREY, "linewidth": 0.8, "zorder": 1}
    colours = (TEXT_COLOUR, *PALETTE)
    return {
        "color": colours[number % len(colours)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": _DASHES[number % len(_DASHES)],
        "markersize": 5 + 2 * min(number, 3),
        "markerfacecolor": "none" if number else colours[0],
        "linewidth": 1.6,
        "zorder": 3 - number / 100,
    }
