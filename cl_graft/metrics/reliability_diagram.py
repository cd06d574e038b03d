"""Reliability diagrams: accuracy against confidence, of one task or with a panel for each."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cl_graft.metrics.calibration import ReliabilityBins
from cl_graft.metrics.figure_style import (
    GREY,
    MOST_PANELS,
    PALETTE,
    TEXT_COLOUR,
    figure_style,
    switch_off_empty_panels,
)

_COLUMNS = 3


@figure_style()
def reliability_diagram(bins: ReliabilityBins, *, title: str = "") -> Figure:
    """Draw accuracy against confidence above a histogram of confidence.

    Bars are the accuracy of each bin that holds rows, dots its mean confidence and accuracy, the
    dashed diagonal perfect calibration.

    Args:
        bins: From `cl_graft.metrics.reliability_bins`.
        title: Printed above the figure; a description by default. The ECE is added to it.

    Examples:
        >>> stored = {"counts": [0, 4], "confidence": [None, 0.9], "accuracy": [None, 0.75]}
        >>> figure = reliability_diagram(ReliabilityBins.from_lists(stored), title="sentiment")
        >>> figure.axes[0].get_title().splitlines()
        ['sentiment', 'ECE 15.0 %, n = 4']
    """
    counts = bins.counts.cpu().numpy()
    centres = (np.arange(len(counts)) + 0.5) / len(counts)
    figure = Figure(figsize=(4.8, 5.8))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    _draw_bins(upper, bins)
    upper.set(ylabel="accuracy (fraction right)")
    figure.legend(loc="outside lower center", ncols=3)
    upper.set_title(f"{title or 'Reliability'}\nECE {100 * bins.ece:.1f} %, n = {counts.sum():,}")
    lower.bar(centres, 100 * counts / counts.sum(), 0.94 / len(counts), color=GREY)
    lower.set(xlabel="confidence (probability of the predicted class)", ylabel="rows (%)")
    return figure


@figure_style()
def reliability_panels(reliability: Mapping[str, ReliabilityBins], *, title: str) -> Figure:
    """Draw accuracy against confidence for every task.

    Bars are the accuracy of a bin, marks its mean confidence, as large as the bin has rows; on the
    dashed line the two are equal.
    """
    panels = list(reliability.items())[:MOST_PANELS]
    rows = math.ceil(len(panels) / _COLUMNS)
    figure = Figure(figsize=(2.5 * min(_COLUMNS, len(panels)) + 0.6, 2.5 * rows + 0.8))
    grid = figure.subplots(
        rows, min(_COLUMNS, len(panels)), squeeze=False, sharex=True, sharey=True
    )
    for axes, (task, bins) in zip(grid.flat, panels, strict=False):
        sizes = (10 + 60 * bins.counts / bins.counts.sum()).cpu().numpy()
        _draw_bins(axes, bins, sizes=sizes)
        axes.set(xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        axes.set_title(f"{task} (ECE {100 * bins.ece:.1f})", fontsize="small")
    switch_off_empty_panels(grid, len(panels))
    figure.suptitle(title)
    figure.supxlabel("confidence", fontsize="medium")
    figure.supylabel("accuracy", fontsize="medium")
    return figure


def _draw_bins(axes: Axes, bins: ReliabilityBins, *, sizes: np.ndarray | None = None) -> None:
    """Draw the accuracy of the bins that hold rows as bars, their means as marks."""
    counts = bins.counts.cpu().numpy()
    confidence, accuracy = bins.confidence.cpu().numpy(), bins.accuracy.cpu().numpy()
    centres = (np.arange(len(counts)) + 0.5) / len(counts)
    filled = counts > 0
    axes.bar(centres[filled], accuracy[filled], 0.94 / len(counts), label="accuracy")
    axes.plot(
        [0, 1], [0, 1], color=TEXT_COLOUR, linestyle="--", linewidth=1, label="perfect calibration"
    )
    axes.scatter(
        confidence[filled],
        accuracy[filled],
        36 if sizes is None else sizes[filled],
        color=PALETTE[4],
        edgecolors="black",
        linewidths=0.6,
        label="mean of bin",
        zorder=3,
        clip_on=False,
    )
    axes.set(xlim=(0, 1), ylim=(0, 1))
