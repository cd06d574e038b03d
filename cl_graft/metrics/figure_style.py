"""The style of all figures, and figures as PNG and SVG.

One drawing serves papers and pages; an SVG has no background.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

TEXT_COLOUR = "#111213"
"""Colour of text and axes, and of nothing else."""

GREY = "#888888"
"""Colour of grids and of what stands back, seen on light and on dark."""

MISSING = (0.5, 0.5, 0.5, 0.3)
"""Colour of cells without a value: a grey that no colour map holds."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of Okabe and Ito, told apart without colour vision: https://jfly.uni-koeln.de/color/."""

MOST_PANELS = 12
"""Tasks that have a panel in a figure with one for each: the first ones of a longer stream."""

_STYLE: dict[Any, Any] = {
    "text.color": TEXT_COLOUR,
    "text.parse_math": False,  # names may hold dollars
    "axes.labelcolor": TEXT_COLOUR,
    "axes.titlecolor": TEXT_COLOUR,
    "axes.edgecolor": TEXT_COLOUR,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.prop_cycle": f"cycler('color', {list(PALETTE)})",
    "xtick.color": TEXT_COLOUR,
    "ytick.color": TEXT_COLOUR,
    "grid.color": GREY,
    "grid.alpha": 0.4,
    "grid.linewidth": 0.6,
    "figure.dpi": 120,
    "figure.constrained_layout.use": True,
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "image.interpolation": "none",
    "legend.frameon": False,
    "legend.fontsize": "small",
    "svg.fonttype": "none",
    "svg.hashsalt": "cl_graft",
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw or write figures in this style, in a ``with`` block or as a decorator.

    A name in a script that the font does not have is drawn as boxes in a PNG; an SVG keeps it.
    """
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")
        yield


def set_log_scale(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make an axis logarithmic, its ticks written without powers: these need mathematical text.

    Where the axis spans less than a factor of ten, the ticks between powers of ten are written too.
    """
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log"})

    def write(value: float, _tick: object = None) -> str:
        if value >= 1:
            return f"{value:,.0f}"
        return np.format_float_positional(value, precision=2, fractional=False, trim="-")

    def write_between(value: float, _tick: object = None) -> str:
        low, high = sorted(axis.get_view_interval())
        return write(value) if high < 10 * low else ""

    axis.set_major_formatter(write)
    axis.set_minor_formatter(write_between)


@figure_style()
def png(figure: Figure, *, dpi: int = 150) -> bytes:
    """Return a figure as the content of a PNG file, on white."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=dpi, facecolor="white")
    return content.getvalue()


@figure_style()
def svg(figure: Figure) -> str:
    """Return a figure as the content of an SVG file without background; its text stays text.

    The same figure gives the same text: there is no date in it, and ids are not drawn at random.
    """
    content = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(content, format="svg", facecolor="none", metadata=no_metadata)
    return content.getvalue()


def switch_off_empty_panels(grid: np.ndarray, filled: int) -> None:
    """Switch off panels without a task, and name the ticks of those that nothing stands under."""
    for axes in grid.flat[filled:]:
        axes.set_axis_off()
    for axes in grid.flat[max(0, filled - grid.shape[1]) : filled]:
        axes.tick_params(labelbottom=True)
