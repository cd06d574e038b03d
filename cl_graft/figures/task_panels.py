"""Figures with a panel for each task: reliability, and where in the model regions lie."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cl_graft.figures.style import MISSING, PALETTE, TEXT_COLOUR, figure_style
from cl_graft.grafts.anatomy import Anatomy

__all__ = ["MOST_PANELS", "anatomy_panels", "place_names", "reliability_panels"]

MOST_PANELS = 12
"""Tasks of which panels are drawn: the first ones of a longer stream."""

_COLUMNS = 3


@figure_style()
def reliability_panels(
    reliability: Mapping[str, Mapping[str, Sequence[float | None]]], *, title: str
) -> Figure:
    """Draw accuracy against confidence for every task.

    Bars are the accuracy of a bin, marks its mean confidence, as large as the bin has rows; on the
    dashed line the two are equal.

    Args:
        reliability: By task: counts, confidence and accuracy of the bins.
        title: Printed above.
    """
    panels = list(reliability.items())[:MOST_PANELS]
    rows = math.ceil(len(panels) / _COLUMNS)
    figure = Figure(figsize=(2.5 * min(_COLUMNS, len(panels)) + 0.6, 2.5 * rows + 0.8))
    grid = figure.subplots(
        rows, min(_COLUMNS, len(panels)), squeeze=False, sharex=True, sharey=True
    )
    for axes, (task, bins) in zip(grid.flat, panels, strict=False):
        _reliability(axes, task, bins)
    _leave_empty(grid, len(panels))
    figure.suptitle(title)
    figure.supxlabel("confidence", fontsize="medium")
    figure.supylabel("accuracy", fontsize="medium")
    return figure


@figure_style()
def anatomy_panels(anatomies: Mapping[str, Anatomy], *, title: str) -> Figure:
    """Draw which share of each place's weights is in the region: layers by modules, a panel a task.

    Args:
        anatomies: By task.
        title: Printed above.
    """
    panels = list(anatomies.items())[:MOST_PANELS]
    kinds, layers = place_names(panels[0][1])
    shown = [(task, 100 * np.ma.masked_invalid(own.density.numpy())) for task, own in panels]
    highest = max((float(values.max()) for _, values in shown), default=0.0) or 1.0
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    height = 0.2 * len(layers) + 0.5
    longest = max(map(len, kinds))
    size = (0.2 * len(kinds) * columns + 1.8, height * rows + 0.08 * longest + 0.8)
    figure = Figure(figsize=size)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    colours = matplotlib.colormaps["viridis"].with_extremes(bad=MISSING)
    image = None
    for axes, (task, values) in zip(grid.flat, shown, strict=False):
        image = axes.imshow(values, cmap=colours, vmin=0, vmax=highest, aspect="auto")
        axes.set_title(task, fontsize="medium")
        axes.set_yticks(range(len(layers)), layers, fontsize="x-small")
        axes.set_xticks(range(len(kinds)), kinds, rotation=90, fontsize="x-small")
    _leave_empty(grid, len(panels))
    figure.suptitle(title)
    figure.supylabel("layer", fontsize="medium")
    if image is not None:
        figure.colorbar(image, ax=grid, label="weights in the region (%)", shrink=0.8, aspect=15)
    return figure


def place_names(anatomy: Anatomy) -> tuple[list[str], list[str]]:
    """Return names of an anatomy's columns and rows, without what all kinds of names share."""
    kinds = [kind.replace(".weight", "").replace(".bias", " (bias)") for kind in anatomy.kinds]
    return kinds, ["other" if layer < 0 else str(layer) for layer in anatomy.layers]


def _leave_empty(grid: np.ndarray, filled: int) -> None:
    """Switch off panels without a task, and name the ticks of those that nothing stands under."""
    for axes in grid.flat[filled:]:
        axes.set_axis_off()
    for axes in grid.flat[max(0, filled - grid.shape[1]) : filled]:
        axes.tick_params(labelbottom=True)


def _reliability(axes: Axes, task: str, bins: Mapping[str, Sequence[float | None]]) -> None:
    counts, accuracy = bins["counts"], bins["accuracy"]
    width, rows = 1 / len(counts), sum(count or 0 for count in counts)
    filled = [place for place, count in enumerate(counts) if count]
    axes.bar(
        [(place + 0.5) * width for place in filled],
        [accuracy[place] or 0.0 for place in filled],
        0.94 * width,
    )
    axes.plot([0, 1], [0, 1], color=TEXT_COLOUR, linestyle="--", linewidth=1)
    axes.scatter(
        [bins["confidence"][place] or 0.0 for place in filled],
        [accuracy[place] or 0.0 for place in filled],
        [10 + 60 * (counts[place] or 0) / rows for place in filled],
        color=PALETTE[4],
        edgecolors="black",
        linewidths=0.6,
        zorder=3,
        clip_on=False,
    )
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    axes.set_title(f"{task} (ECE {100 * _ece(bins):.1f})", fontsize="small")


def _ece(bins: Mapping[str, Sequence[float | None]]) -> float:
    """Return the calibration error of stored bins; see `cl_graft.metrics.ReliabilityBins.ece`."""
    rows = zip(bins["counts"], bins["confidence"], bins["accuracy"], strict=True)
    gaps = [(n, abs(a - c)) for n, c, a in rows if n and c is not None and a is not None]
    return sum(n * gap for n, gap in gaps) / sum(n for n, _ in gaps)
