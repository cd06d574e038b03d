"""Figures of a stream: the matrix R, the overlap of regions, reliability diagrams.

Every function returns a `matplotlib.figure.Figure` made through matplotlib's object interface: no
window, no global state, nothing to close. `figure.savefig(path)` writes it; a TensorBoard
`SummaryWriter` takes it with `add_figure`. Colours are readable without colour vision.
"""

import math
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from cl_graft.figures.style import GREY, MISSING, PALETTE, TEXT_COLOUR, figure_style
from cl_graft.metrics.calibration import ReliabilityBins
from cl_graft.metrics.continual import ScoreMatrix

__all__ = [
    "overlap_heatmap",
    "r_matrix_heatmap",
    "reliability_diagram",
]

_NUMBERED = 24
"""Tasks up to which each cell has its number and each row its name."""


@figure_style()
def r_matrix_heatmap(
    R: ScoreMatrix, names: Sequence[str], *, title: str = "", score_name: str = "accuracy"
) -> Figure:
    """Draw R[i][j]: one row an experience trained on, one column an experience tested on.

    Args:
        R: Scores as fractions; drawn and written as percentages. None cells stay grey.
        names: One name an experience.
        title: Printed above the figure; a description by default.
        score_name: What the scores are, for the colour bar.

    Raises:
        ValueError: If R is not square with one row a name.
    """
    percent = 100 * _square(R, names, "R")
    low = min(0.0, float(np.nanmin(percent, initial=0.0)))
    return _heatmap(
        percent,
        names,
        title=title or f"R: {score_name} after each experience",
        x_label="tested on",
        y_label="after training on",
        colour_label=f"{score_name} (%)",
        limits=(low, 100.0),
        digits=1,
    )


@figure_style()
def overlap_heatmap(
    overlap: Sequence[Sequence[float | None]], names: Sequence[str], *, title: str = ""
) -> Figure:
    """Draw the overlap of regions, |γ_i ∩ γ_j| / |γ_j| in row i and column j.

    Args:
        overlap: Fractions in [0, 1], square; drawn and written as percentages. None cells stay
            grey.
        names: One name a region.
        title: Printed above the figure; a description by default.

    Raises:
        ValueError: If the matrix is not square with one row a name.
    """
    return _heatmap(
        100 * _square(overlap, names, "the overlap matrix"),
        names,
        title=title or "Overlap of regions",
        x_label="region j",
        y_label="region i",
        colour_label="|region i ∩ region j| / |region j| (%)",
        limits=(0.0, 100.0),
        digits=1,
    )


@figure_style()
def reliability_diagram(bins: ReliabilityBins, *, title: str = "") -> Figure:
    """Draw accuracy against confidence above a histogram of confidence.

    Bars are the accuracy of each bin that holds rows, dots its mean confidence and accuracy, the
    dashed diagonal perfect calibration.

    Args:
        bins: From `cl_graft.metrics.reliability_bins`.
        title: Printed above the figure; a description by default. The ECE is added to it.
    """
    counts = bins.counts.cpu().numpy()
    confidence, accuracy = bins.confidence.cpu().numpy(), bins.accuracy.cpu().numpy()
    width = 1 / len(counts)
    centres = (np.arange(len(counts)) + 0.5) * width
    filled = counts > 0

    figure = Figure(figsize=(4.8, 5.8))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.bar(centres[filled], accuracy[filled], 0.94 * width, label="accuracy")
    upper.plot([0, 1], [0, 1], color=TEXT_COLOUR, linestyle="--", label="perfect calibration")
    upper.plot(
        confidence[filled],
        accuracy[filled],
        linestyle="none",
        marker="o",
        color=PALETTE[4],
        markeredgecolor="black",
        label="mean of bin",
        clip_on=False,
    )
    upper.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy (fraction right)")
    figure.legend(loc="outside lower center", ncols=3)
    upper.set_title(f"{title or 'Reliability'}\nECE {100 * bins.ece:.1f} %, n = {counts.sum():,}")
    lower.bar(centres, 100 * counts / counts.sum(), 0.94 * width, color=GREY)
    lower.set(xlabel="confidence (probability of the predicted class)", ylabel="rows (%)")
    return figure


def _square(cells: Sequence[Sequence[float | None]], names: Sequence[str], what: str) -> np.ndarray:
    size = len(names)
    if size == 0 or len(cells) != size or any(len(row) != size for row in cells):
        raise ValueError(
            f"{what} must be square with one row and one column a name: got {size} names, "
            f"rows of {[len(row) for row in cells]} cells"
        )
    return np.array(
        [[np.nan if cell is None else float(cell) for cell in row] for row in cells],
        dtype=np.float64,
    ).reshape(size, size)


def _heatmap(
    values: np.ndarray,
    names: Sequence[str],
    *,
    title: str,
    x_label: str,
    y_label: str,
    colour_label: str,
    limits: tuple[float, float],
    digits: int,
) -> Figure:
    size = len(names)
    # The picture of a long stream stays as large as that of a short one: its memory would grow
    # with the square of the number of tasks.
    side = 2.4 + 0.62 * min(size, _NUMBERED)
    every = math.ceil(size / _NUMBERED)
    figure = Figure(figsize=(side + 1.2, side))
    axes = figure.subplots()
    colours = matplotlib.colormaps["viridis"].with_extremes(bad=MISSING)
    image = axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1])
    named = names[::every]
    axes.set_xticks(range(0, size, every), named, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(0, size, every), named)
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    middle = sum(limits) / 2
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value) and every == 1:
            colour = "white" if value < middle else "black"
            text = f"{value:.{digits}f}"
            axes.text(j, i, text, ha="center", va="center", color=colour, fontsize="small")
    figure.colorbar(image, ax=axes, label=colour_label, shrink=0.85)
    return figure
