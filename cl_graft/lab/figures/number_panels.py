"""Scatter plots of answered numbers against the right ones, a panel a task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from cl_graft.metrics.figure_style import (
    MOST_PANELS,
    PALETTE,
    TEXT_COLOUR,
    figure_style,
    switch_off_empty_panels,
)

_COLUMNS = 3


@figure_style()
def number_panels(
    found: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    title: str,
    notes: Mapping[str, str],
) -> Figure:
    """Draw answers against right numbers; on the dashed line the two are equal.

    Both axes of a panel have the same limits, those of all its numbers, so that answers which
    hardly vary are seen to.

    Args:
        found: Right and answered numbers of the rows of each task.
        title: Printed above.
        notes: What stands behind the name of a task above its panel.
    """
    panels = list(found.items())[:MOST_PANELS]
    rows, columns = math.ceil(len(panels) / _COLUMNS), min(_COLUMNS, len(panels))
    figure = Figure(figsize=(2.9 * columns + 1.2, 3.1 * rows + 0.8))
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, (task, (right, answers)) in zip(grid.flat, panels, strict=False):
        limits = _limits([*right, *answers])
        axes.plot(limits, limits, color=TEXT_COLOUR, linestyle="--", linewidth=1)
        axes.plot(right, answers, "o", markersize=4, color=PALETTE[0], alpha=0.6)
        axes.set(xlim=limits, ylim=limits, aspect="equal")
        axes.locator_params(nbins=5)
        axes.set_title(f"{task}\n{notes[task]}", fontsize="small")
        axes.grid()
    switch_off_empty_panels(grid, len(panels))
    figure.suptitle(title)
    figure.supxlabel("right number", fontsize="medium")
    figure.supylabel("answer", fontsize="medium")
    return figure


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Return limits that hold all values, a twentieth of their span apart from them."""
    low, high = float(np.min(values)), float(np.max(values))
    span = high - low or max(1.0, abs(low))
    return low - span / 20, high + span / 20
