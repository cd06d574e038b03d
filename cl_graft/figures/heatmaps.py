"""Heat maps of fractions, one panel a measure, each cell with its number.

They are apart from `diagrams`, whose maps are square: here rows and columns may differ.
"""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

__all__ = ["heatmaps"]

_CELL = 0.62
"""Side of a cell, in inches."""
_MISSING = "0.85"


def heatmaps(
    panels: Mapping[str, Mapping[tuple[str, str], float]],
    *,
    title: str,
    x_label: str,
    y_label: str,
) -> Figure:
    """Draw fractions in per cent, one panel below the other.

    Args:
        panels: Fractions by (row, column), by the panel's title; a panel without any is left out.
        title: Title of the figure.
        x_label: What columns are.
        y_label: What rows are.

    Raises:
        ValueError: If no panel has a fraction.
    """
    panels = {name: cells for name, cells in panels.items() if cells}
    if not panels:
        raise ValueError("no fraction to draw: every panel is empty")
    rows = {name: list(dict.fromkeys(row for row, _ in cells)) for name, cells in panels.items()}
    columns = list(dict.fromkeys(column for cells in panels.values() for _, column in cells))
    tall = [len(names) for names in rows.values()]
    longest = max(len(row) for names in rows.values() for row in names)
    size = (2.6 + 0.085 * longest + _CELL * len(columns), 1.2 + sum(1.7 + _CELL * n for n in tall))
    figure = Figure(figsize=size, dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(len(panels), 1, height_ratios=[n + 1 for n in tall]))
    if len(panels) > 1:
        figure.suptitle(title)
    for panel, (name, cells) in zip(axes, panels.items(), strict=True):
        _draw(figure, panel, cells, rows=rows[name], columns=columns)
        # A title of the figure would stand left of the cells, which long names of rows push away.
        own = name if len(panels) > 1 else f"{title}\n{name}"
        panel.set(title=own, xlabel=x_label, ylabel=y_label)
    return figure


def _draw(
    figure: Figure,
    panel: Axes,
    cells: Mapping[tuple[str, str], float],
    *,
    rows: list[str],
    columns: list[str],
) -> None:
    values = np.full((len(rows), len(columns)), np.nan)
    for (row, column), value in cells.items():
        values[rows.index(row), columns.index(column)] = 100 * value
    colours = matplotlib.colormaps["viridis"].with_extremes(bad=_MISSING)
    most = float(np.nanmax(values))
    whole = most > 20  # smaller shares would all be of one colour on the whole scale
    highest = 100.0 if whole else most or 1.0
    image = panel.imshow(values, cmap=colours, vmin=0.0, vmax=highest)
    panel.set_xticks(range(len(columns)), columns, rotation=40, ha="right", rotation_mode="anchor")
    panel.set_yticks(range(len(rows)), rows)
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            panel.text(
                j,
                i,
                f"{value:.{0 if whole else 1}f}",
                ha="center",
                va="center",
                color="white" if value < highest / 2 else "black",
                fontsize="small",
            )
    figure.colorbar(image, ax=panel, label="%", shrink=0.9)
