"""Figures as files and inside a page: one drawing, in dark and in light.

Figures are drawn on nothing, with text and lines in two colours that no palette holds. In a file
these are black and grey on white; inside a page they are the page's own, so a figure follows its
theme. Text stays text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cl_graft.figures.diagrams import png

__all__ = ["INK", "LINE", "PALETTE", "blank", "drawing", "for_page", "png_file", "svg_file"]

INK, LINE = "#111213", "#b8b9ba"
"""Text and axes; grids."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Of Okabe and Ito, told apart without colour vision: https://jfly.uni-koeln.de/color/."""

_COORDINATES = re.compile(r'(?<= )(?:d|x|y|points)="[^"]*"')
_MORE_DIGITS = re.compile(r"(\.\d\d)\d+")

_STYLE: dict[Any, Any] = {
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": LINE,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "text.parse_math": False,
    "font.sans-serif": ["DejaVu Sans"],
    "image.interpolation": "none",
    "font.size": 10,
    "axes.titlesize": 11,
    "svg.fonttype": "none",
    "svg.hashsalt": "cl_graft",
}


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the report's style for a `with` block."""
    with matplotlib.rc_context(_STYLE):
        yield


def blank(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def svg_file(figure: Figure) -> str:
    """Return a figure as the content of an SVG file, black on nothing."""
    content = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context(_STYLE):
        figure.savefig(content, format="svg", facecolor="none", metadata=nothing)
    return content.getvalue()


def png_file(figure: Figure) -> bytes:
    """Return a figure as the content of a PNG file, black on white."""
    figure.patch.set_facecolor("white")
    try:
        return png(figure)
    finally:
        figure.patch.set_facecolor("none")


def for_page(svg: str, *, name: str, title: str) -> str:
    """Return a figure for the inside of a page, as one image with a name for screen readers.

    Args:
        svg: What `svg_file` returned.
        name: Comes before the ids in it: letters, digits and dashes, another for each figure.
        title: What it shows, in a sentence.
    """
    text = svg[svg.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = _COORDINATES.sub(lambda found: _MORE_DIGITS.sub(r"\1", " ".join(found[0].split())), text)
    text = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
    text = text.replace(INK, "var(--ink)").replace(LINE, "var(--line)")
    size = r' (?:width|height)="([\d.]+)pt"'
    width, height = (float(found) for found in re.findall(size, text)[:2])
    text = re.sub(size, "", text, count=2)
    style = f"--width: {width * 4 / 3:.0f}px; --ratio: {width / height:.4f}"
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(title)}" style="{style}"', 1)
