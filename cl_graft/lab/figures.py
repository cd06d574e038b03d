"""Figures of results, their style, and figures as PNG and SVG.

Every figure is a `matplotlib.figure.Figure` made through matplotlib's object interface: no window,
no global state, nothing to close. `figure.savefig(path)` writes it; a TensorBoard `SummaryWriter`
takes it with `add_figure`. One drawing serves papers and pages; an SVG has no background.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cl_graft.metrics import ReliabilityBins, ScoreMatrix

TEXT_COLOUR = "#111213"
"""Colour of text and axes, and of nothing else."""

GREY = "#888888"
"""Colour of grids and of what stands back, seen on light and on dark."""

MISSING = (0.5, 0.5, 0.5, 0.3)
"""Colour of cells without a value: a grey that no colour map holds."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of Okabe and Ito, told apart without colour vision: https://jfly.uni-koeln.de/color/."""

MOST_PANELS, PANEL_COLUMNS = 12, 3
"""Tasks that have a panel in a figure with one for each, the first ones; and panels in a row."""

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

_COLOURS = (*PALETTE, TEXT_COLOUR)
_MARKERS = "osD^vPX*"
_WIDEST = 11
"""Inches that panels side by side may take; wider, their words are too small on a page."""
_APART = 4
"""Largest ratio of the heights of two panels on the same scale."""
_INVISIBLE = 100
"""Largest ratio of two bars on a linear scale."""
_TICKS = 6
"""Places on a logarithmic axis up to which each has its number."""


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


@dataclass(frozen=True)
class Score:
    """One point of a figure; without `x` it has no place on the axis."""

    panel: str
    name: str
    x: float | None
    mean: float
    deviation: float


@figure_style()
def score_curves(
    scores: Sequence[Score], *, title: str, measure: str, axis: str, logarithmic: bool
) -> Figure:
    """Draw scores against the axis where there is one, else as bars.

    Beside curves, what has no place on the axis is a line across. Panels share a scale, unless
    curves would be flat beside others. Bars of which some would be invisible beside others stand on
    a logarithmic scale.
    """
    titles = list(dict.fromkeys(score.panel for score in scores))
    names = list(dict.fromkeys(score.name for score in scores))
    along = any(score.x is not None for score in scores)
    wide = max(3.6, 0.32 * (0 if along else len(names)))
    lines = math.ceil(len(titles) / max(1, int(_WIDEST / wide)))
    columns = math.ceil(len(titles) / lines)
    size = (1.2 + wide * columns, 4.6 * lines)
    figure = Figure(figsize=size)
    tops = [max(abs(s.mean) for s in scores if s.panel == caption) for caption in titles]
    shared = not along or max(tops) <= _APART * min(tops)
    unequal = 0 < _INVISIBLE * min(s.mean for s in scores) < max(tops)
    panels = figure.subplots(lines, columns, sharey=shared, squeeze=False).flatten()
    for panel in panels[len(titles) :]:
        panel.set_axis_off()
    for panel, caption in zip(panels, titles, strict=False):
        for i, name in enumerate(names):
            part = [s for s in scores if s.panel == caption and s.name == name]
            style = {"color": _COLOURS[i % len(_COLOURS)], "label": name}
            curve = [(s.x, s.mean, s.deviation) for s in part if s.x is not None]
            curve = sorted(point for point in curve if point[0] > 0 or not logarithmic)
            if curve:
                x, mean, spread = (list(side) for side in zip(*curve, strict=True))
                marker = _MARKERS[i % len(_MARKERS)]
                panel.errorbar(x, mean, yerr=spread, marker=marker, capsize=2, **style)
            elif part and along:
                panel.axhline(part[0].mean, linestyle="--", linewidth=1, **style)
            elif part:
                panel.bar(i, part[0].mean, yerr=part[0].deviation or None, capsize=2, **style)
        panel.set(title=caption, xlabel=axis if along else "")
        if along and logarithmic:
            set_log_scale(panel, "x")
            places = sorted({s.x for s in scores if s.x})
            if len(places) <= _TICKS:
                panel.set_xticks(places, [f"{x:g}" for x in places])
                panel.set_xticks([], minor=True)
        if not along:
            if unequal:
                set_log_scale(panel, "y")
            panel.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize="small")
        panel.grid(axis="both" if along else "y")
    for panel in panels[::columns]:
        panel.set_ylabel(measure)
    figure.suptitle(textwrap.fill(title, round(10 * figure.get_figwidth())))
    if along:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=min(2 * columns, len(labels))
        )  # fmt: skip
    return figure


_NUMBERED = 24
"""Tasks up to which each cell has its number and each of them its name."""

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
        panel_title = name if len(panels) > 1 else f"{title}\n{name}"
        axes.set(title=panel_title, xlabel=x_label, ylabel=y_label)
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


_DASHES = ("-", "--", ":", "-.")
NAMED = 12
"""Strategies that get a colour of their own; others are drawn thin and grey."""
_LINE = 0.18
"""Inches of a name beside a point."""


@figure_style()
def stream_curves(
    curves: Mapping[str, Sequence[Sequence[float | None]]],
    tasks: Sequence[str],
    *,
    title: str,
    measure: str,
) -> Figure:
    """Draw fractions as points along the stream: a line a strategy, the range of runs as a band.

    A strategy has a list for each run, with a value after each task; None where there is none.
    """
    figure = Figure(figsize=(6.4, 4.2))
    axes = figure.subplots()
    places = range(len(tasks))
    every = math.ceil(len(tasks) / _NUMBERED)
    for number, (name, runs) in enumerate(curves.items()):
        style = line_style(number)
        known = [_drop_missing(values) for values in zip(*runs, strict=True)]
        points = [(x, 100 * mean(values)) for x, values in enumerate(known) if values]
        if not points:
            continue
        label = name if number < NAMED else None
        axes.plot(*zip(*points, strict=True), label=label, markevery=every, **style)
        band = [(x, 100 * min(v), 100 * max(v)) for x, v in enumerate(known) if len(v) > 1]
        if band and number < NAMED:
            xs, low, high = zip(*band, strict=True)
            axes.fill_between(xs, low, high, color=style["color"], alpha=0.15, lw=0)
    axes.set_xticks(
        places[::every], tasks[::every], rotation=30, ha="right", rotation_mode="anchor"
    )
    axes.set(title=title, xlabel="after learning", ylabel=measure)
    mark_range(axes)
    axes.grid(axis="y")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


@figure_style()
def byte_scatter(
    points: Mapping[str, tuple[float, float, float]], *, title: str, measure: str
) -> Figure:
    """Draw each strategy's score and its deviation, fractions, against the bytes that a task adds.

    Strategies that add nothing stand at the left edge.
    """
    height = max(6.0, 1.2 * _LINE * len(points))
    figure = Figure(figsize=(9, height))
    axes = figure.subplots()
    set_log_scale(axes, "x")
    least = min((size for *_, size in points.values() if size > 0), default=1.0) / 2
    sizes = {name: max(size, least) for name, (*_, size) in points.items()}
    places = {name: (sizes[name], 100 * score) for name, (score, *_) in points.items()}
    for name, (x, y) in places.items():
        spread = 100 * points[name][1]
        axes.errorbar(x, y, yerr=spread, fmt="o", color=PALETTE[0], ecolor=GREY, elinewidth=0.8)
    low, high = min(sizes.values()), max(sizes.values())
    axes.set_xlim(low / 1.3, 1.3 * high * (high / low) ** 0.15)  # names need room at the right
    _write_names(axes, places, line=_LINE / height)
    axes.set(title=title, xlabel="bytes that a task adds", ylabel=f"{measure} at the end (%)")
    axes.grid()
    return figure


def _write_names(axes: Axes, places: Mapping[str, tuple[float, float]], *, line: float) -> None:
    """Write names beside points, moved down where two would overlap; a line is a share of axes."""
    to_axes = (axes.transData + axes.transAxes.inverted()).transform
    taken: list[tuple[float, float, float]] = []  # where a name begins, ends, and its height
    for name in sorted(places, key=lambda name: -places[name][1]):
        x, height = to_axes(places[name])
        begin, end = x + 0.012, x + 0.012 + 0.011 * len(name)
        while any(b < end and begin < e and abs(height - h) < line for b, e, h in taken):
            height -= line / 4
        taken.append((begin, end, height))
        axes.annotate(
            name,
            places[name],
            (begin, height),
            textcoords="axes fraction",
            fontsize="x-small",
            va="center",
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4},
        )


@figure_style()
def reliability_panels(reliability: Mapping[str, ReliabilityBins], *, title: str) -> Figure:
    """Draw accuracy against confidence for every task, of up to twelve.

    Bars are the accuracy of a bin, marks its mean confidence, as large as the bin has rows; on the
    dashed line the two are equal. A panel's title has the task's ECE in points.

    Examples:
        >>> stored = {"counts": [0, 4], "confidence": [None, 0.9], "accuracy": [None, 0.75]}
        >>> bins = {"sentiment": ReliabilityBins.from_lists(stored)}
        >>> reliability_panels(bins, title="Reliability").axes[0].get_title()
        'sentiment (ECE 15.0)'
    """
    panels = list(reliability.items())[:MOST_PANELS]
    columns = min(PANEL_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(2.5 * columns + 0.6, 2.5 * rows + 0.8))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes, (task, bins) in zip(grid.flat, panels, strict=False):
        counts = bins.counts.cpu().numpy()
        filled = counts > 0
        confidence, accuracy = (m.cpu().numpy()[filled] for m in (bins.confidence, bins.accuracy))
        centres = ((np.arange(len(counts)) + 0.5) / len(counts))[filled]
        axes.bar(centres, accuracy, 0.94 / len(counts))
        axes.plot([0, 1], [0, 1], color=TEXT_COLOUR, linestyle="--", linewidth=1)
        axes.scatter(
            confidence,
            accuracy,
            10 + 60 * counts[filled] / counts.sum(),
            color=PALETTE[4],
            edgecolors="black",
            linewidths=0.6,
            zorder=3,
            clip_on=False,
        )
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        axes.set_title(f"{task} (ECE {100 * bins.ece:.1f})", fontsize="small")
    switch_off_empty_panels(grid, len(panels))
    figure.suptitle(title)
    figure.supxlabel("confidence", fontsize="medium")
    figure.supylabel("accuracy", fontsize="medium")
    return figure


def mean_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that there are; None without any."""
    known = _drop_missing(values)
    return mean(known) if known else None


def _drop_missing(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def mark_range(axes: Axes) -> None:
    """Let a vertical axis span a point at least, and say where it does not begin at 0."""
    low, high = axes.get_ylim()
    if high - low < 1:
        low, high = ((low + high) / 2 + side for side in (-0.5, 0.5))
        axes.set_ylim(low, high)
    if low > 0:
        axes.set_ylabel(f"{axes.get_ylabel()}, axis from {low:.3g}")


def line_style(number: int) -> dict[str, Any]:
    """Return colour, marker and dashes of a line: no two of the first twelve look alike.

    The first lies on top. Those below have larger and hollow markers, which stay seen around it
    where curves coincide.
    """
    if number >= NAMED:
        return {"color": GREY, "linewidth": 0.8, "zorder": 1}
    colours = (TEXT_COLOUR, *PALETTE)
    return {
        "color": colours[number % len(colours)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": _DASHES[number % len(_DASHES)],
        "markersize": 5 + 2 * min(number, 3),
        "markerfacecolor": "none" if number else colours[0],
        "linewidth": 1.6,
        "zorder": 3 - number / 100,
    }
