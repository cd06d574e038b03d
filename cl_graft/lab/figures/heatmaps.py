"""Heatmaps: the matrix R, and shares of any kind.

Every function returns a `matplotlib.figure.Figure` made through matplotlib's object interface: no
window, no global state, nothing to close. `figure.savefig(path)` writes it; a TensorBoard
`SummaryWriter` takes it with `add_figure`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cl_graft.metrics.continual import ScoreMatrix
from cl_graft.metrics.figure_style import MISSING, figure_style

_NUMBERED = 24
"""Tasks up to which each cell has its number and each row its name."""

_CELL = 0.62
"""Side of a cell, in inches."""


@figure_style()
def r_matrix_heatmap(R: ScoreMatrix, names: Sequence[str], *, title: str = "") -> Figure:
    """Draw R[i][j]: one row an experience trained on, one column an experience tested on.

    Args:
        R: Scores as fractions; drawn and written as percentages. None cells stay grey.
        names: One name an experience.
        title: Printed above the figure; a description by default.

    Raises:
        ValueError: If R is not square with one row a name.

    Examples:
        >>> figure = r_matrix_heatmap([[0.9, None], [0.9, 0.8]], ["first", "second"])
        >>> figure.axes[0].get_xlabel()
        'tested on'
    """
    size = len(names)
    if size == 0 or len(R) != size or any(len(row) != size for row in R):
        raise ValueError(
            f"R must be square with one row and one column a name: got {size} names, "
            f"rows of {[len(row) for row in R]} cells"
        )
    values = [[np.nan if cell is None else float(cell) for cell in row] for row in R]
    percent = 100 * np.array(values, dtype=np.float64)
    # The picture of a long stream stays as large as that of a short one: its memory would grow
    # with the square of the number of tasks.
    side = _CELL * min(size, _NUMBERED)
    bar = 0.0 if size <= _NUMBERED else 1.2  # numbers in the cells say what a bar would
    longest = min(20, max(map(len, names)))
    figure = Figure(figsize=(1.1 + 0.075 * longest + side + bar, 1.1 + 0.05 * longest + side))
    axes = figure.subplots()
    limits = min(0.0, float(np.nanmin(percent, initial=0.0))), 100.0
    every = math.ceil(size / _NUMBERED)
    _draw_cells(
        axes, percent, names, names, limits=limits, label="score (%)" if bar else "", every=every
    )
    axes.set(title=f"{title or 'R: score after each experience'}{'' if bar else ' (%)'}")
    axes.set(xlabel="tested on", ylabel="after training on")
    return figure


@figure_style()
def share_heatmaps(
    panels: Mapping[str, Mapping[tuple[str, str], float]], *, title: str, x_label: str, y_label: str
) -> Figure:
    """Draw shares, by (row, column), in per cent, a panel below the other without empty ones."""
    panels = {name: cells for name, cells in panels.items() if cells}
    if not panels:
        raise ValueError("no fraction to draw: every panel is empty")
    rows = {name: list(dict.fromkeys(row for row, _ in cells)) for name, cells in panels.items()}
    columns = list(dict.fromkeys(column for cells in panels.values() for _, column in cells))
    tall = [len(names) for names in rows.values()]
    longest = max(len(row) for names in rows.values() for row in names)
    size = (2.6 + 0.085 * longest + _CELL * len(columns), 1.2 + sum(1.7 + _CELL * n for n in tall))
    figure = Figure(figsize=size)
    grid = figure.subplots(
        len(panels), 1, squeeze=False, height_ratios=[count + 1 for count in tall]
    )
    if len(panels) > 1:
        figure.suptitle(title)
    for axes, (name, cells) in zip(grid.flat, panels.items(), strict=True):
        values = np.full((len(rows[name]), len(columns)), np.nan)
        for (row, column), value in cells.items():
            values[rows[name].index(row), columns.index(column)] = 100 * value
        most = float(np.nanmax(values))
        whole = most > 20  # smaller shares would all be of one colour on the whole scale
        limits = (0.0, 100.0 if whole else most or 1.0)
        _draw_cells(
            axes, values, rows[name], columns, limits=limits, label="%", digits=0 if whole else 1
        )
        # A title of the figure would stand left of the cells, which long names of rows push away.
        own = name if len(panels) > 1 else f"{title}\n{name}"
        axes.set(title=own, xlabel=x_label, ylabel=y_label)
    return figure


def _draw_cells(
    axes: Axes,
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    limits: tuple[float, float],
    label: str,
    digits: int = 1,
    every: int = 1,
) -> None:
    """Draw a matrix, with a colour bar if it has a label; numbers where every row has its name."""
    colours = matplotlib.colormaps["viridis"].with_extremes(bad=MISSING)
    image = axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1])
    axes.set_xticks(
        range(0, len(columns), every),
        columns[::every],
        rotation=40,
        ha="right",
        rotation_mode="anchor",
    )
    axes.set_yticks(range(0, len(rows), every), rows[::every])
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value) and every == 1:
            colour = "white" if value < sum(limits) / 2 else "black"
            text = f"{value:.{digits}f}"
            axes.text(j, i, text, ha="center", va="center", color=colour, fontsize="small")
    if label:
        axes.figure.colorbar(image, ax=axes, label=label, shrink=0.85)
