"""Pictures of readings: curves along an axis, or bars side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cl_graft.laboratory.readings import Summary
from cl_graft.laboratory.squares import squares
from cl_graft.laboratory.table import Experiment

__all__ = ["picture", "picture_of"]

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
_MARKS = "osD^vPX*"
_MOST = 6
"""Tasks that have a panel of their own."""


def picture_of(experiment: Experiment, rows: Sequence[Summary]) -> Figure:
    """Draw what an experiment's picture shows.

    Raises:
        ValueError: If nothing has its measure.
    """
    if experiment.squares:
        return squares(rows, title=experiment.title, measures=experiment.squares)
    return picture(
        rows,
        title=experiment.title,
        measure=experiment.measure,
        axis=experiment.axis,
        logarithmic=experiment.logarithmic,
    )


def picture(
    rows: Sequence[Summary], *, title: str, measure: str, axis: str, logarithmic: bool
) -> Figure:
    """Draw one measure, one panel a task: against the axis where there is one, else as bars.

    Beside curves, what has no place on the axis is a line across.

    Args:
        rows: From `summarize`.
        title: Printed above.
        measure: Which measure to draw.
        axis: What the axis is, with its unit.
        logarithmic: Whether the axis is; places at 0 are left out then.

    Raises:
        ValueError: If nothing has the measure.
    """
    own = [row for row in rows if row.measure == measure]
    tasks = list(dict.fromkeys(row.task for row in own))[:_MOST]
    methods = list(dict.fromkeys(row.method for row in own))
    if not own:
        raise ValueError(f"no reading of {measure!r} to draw")
    along = any(row.x is not None for row in own)
    wide = max(3.6, 0.32 * (0 if along else len(methods))) * len(tasks)
    figure = Figure(figsize=(1.2 + wide, 4.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    panels = np.atleast_1d(figure.subplots(1, len(tasks), sharey=True))
    for panel, task in zip(panels, tasks, strict=True):
        for place, method in enumerate(methods):
            part = [row for row in own if row.task == task and row.method == method]
            style = {"color": _COLOURS[place % 8], "label": method}
            curve = [(r.x, r.mean, r.deviation) for r in part if r.x is not None]
            curve = sorted(point for point in curve if point[0] > 0 or not logarithmic)
            if curve:
                x, mean, spread = (list(side) for side in zip(*curve, strict=True))
                panel.errorbar(x, mean, yerr=spread, marker=_MARKS[place % 8], capsize=2, **style)
            elif part and along:
                panel.axhline(part[0].mean, linestyle="--", linewidth=1, **style)
            elif part:
                panel.bar(place, part[0].mean, yerr=part[0].deviation, capsize=2, **style)
        panel.set(title=task, xlabel=axis if along else "")
        if along and logarithmic:
            panel.set_xscale("log")
        if not along:
            panel.set_xticks(
                range(len(methods)), methods, rotation=40, ha="right", fontsize="small"
            )
        panel.grid(alpha=0.3, axis="both" if along else "y")
    panels[0].set_ylabel(measure)
    figure.suptitle(textwrap.fill(title, round(10 * figure.get_figwidth())))
    if along:
        handles, labels = panels[0].get_legend_handles_labels()
        columns = min(2 * len(tasks), len(labels))
        figure.legend(
            handles, labels, loc="outside lower center", ncols=columns, frameon=False,
            fontsize="small",
        )  # fmt: skip
    return figure
