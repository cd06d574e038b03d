"""Pictures of readings as squares: a row a method, a column a task, each with its number."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cl_graft.laboratory.readings import Summary

__all__ = ["squares"]

_SIDE = 0.62
"""Of a square, in inches."""
_MISSING = "0.85"


def squares(
    rows: Sequence[Summary],
    *,
    title: str,
    measures: Sequence[tuple[str, str]],
    x_label: str = "task j",
    y_label: str = "region i",
) -> Figure:
    """Draw measures that are fractions, one panel each, in per cent.

    Args:
        rows: From `summarize`.
        title: Printed above.
        measures: Each measure with the title of its panel; those without a number are left out.
        x_label: What tasks are.
        y_label: What methods are.

    Raises:
        ValueError: If nothing has any of the measures.
    """
    panels = [(name, [r for r in rows if r.measure == name]) for name, _ in measures]
    panels = [(name, own) for name, own in panels if own]
    if not panels:
        raise ValueError(f"no reading of {', '.join(name for name, _ in measures)} to draw")
    tall = [len({row.method for row in own}) for _, own in panels]
    tasks = list(dict.fromkeys(row.task for _, own in panels for row in own))
    longest = max(len(_row_name(row.method)) for _, own in panels for row in own)
    size = (2.6 + 0.085 * longest + _SIDE * len(tasks), 1.2 + sum(1.7 + _SIDE * n for n in tall))
    figure = Figure(figsize=size, dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(len(panels), 1, height_ratios=[n + 1 for n in tall]))
    titles = dict(measures)
    if len(panels) > 1:
        figure.suptitle(title)
    else:  # over the squares, which long names of rows push to the right
        titles = {name: f"{title}\n{own}" for name, own in measures}
    for panel, (name, own) in zip(axes, panels, strict=True):
        _draw(figure, panel, own, tasks)
        panel.set(title=titles[name], xlabel=x_label, ylabel=y_label)
    return figure


def _draw(figure: Figure, panel: Axes, rows: Sequence[Summary], tasks: Sequence[str]) -> None:
    methods = list(dict.fromkeys(row.method for row in rows))
    values = np.full((len(methods), len(tasks)), np.nan)
    for row in rows:
        values[methods.index(row.method), tasks.index(row.task)] = 100 * row.mean
    colours = matplotlib.colormaps["viridis"].with_extremes(bad=_MISSING)
    most = float(np.nanmax(values))
    whole = most > 20  # smaller shares would all be of one colour on the whole scale
    highest = 100.0 if whole else most or 1.0
    image = panel.imshow(values, cmap=colours, vmin=0.0, vmax=highest)
    panel.set_xticks(range(len(tasks)), tasks, rotation=40, ha="right", rotation_mode="anchor")
    panel.set_yticks(range(len(methods)), [_row_name(method) for method in methods])
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            ink = "white" if value < highest / 2 else "black"
            panel.text(
                j,
                i,
                f"{value:.{0 if whole else 1}f}",
                ha="center",
                va="center",
                color=ink,
                fontsize="small",
            )
    figure.colorbar(image, ax=panel, label="%", shrink=0.9)


def _row_name(method: str) -> str:
    return method.removeprefix("region of ")
