"""The pictures of a report: each figure of the page, with its numbers as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from cl_graft.lab.figures import (
    Score,
    byte_scatter,
    mean_known,
    r_matrix_heatmap,
    reliability_panels,
    score_curves,
    share_heatmaps,
    stream_curves,
)
from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.results.comparison import ComparisonSummary
from cl_graft.lab.results.run_results import RunResult
from cl_graft.lab.results.tables import Table, make_matrix, make_points, make_row
from cl_graft.metrics.calibration import ReliabilityBins

MOST_STRATEGIES = 16
"""Strategies that have a matrix and a reliability diagram of their own."""

_HALF = 6.6
"""Inches of half the page's width."""

_THIRD = 4.6
"""Inches up to which three figures stand side by side."""

_MOST_IN_TABLES = 24
"""Tasks up to which a picture has a table."""

_WIDE = 5
"""Ratio of the largest to the smallest value from which the axis of a sweep is logarithmic."""


@dataclass(frozen=True)
class Picture:
    """A figure of the page, and its numbers as a table, where they stand nowhere else.

    `name` is that of the files, screen readers say `title`; `strategy` is set where it is of one.
    """

    name: str
    title: str
    figure: Figure
    table: Table | None = None
    strategy: str = ""

    @property
    def wide(self) -> bool:
        """Whether the figure needs the page's whole width."""
        return bool(self.figure.get_figwidth() > _HALF)

    @property
    def narrow(self) -> bool:
        """Whether a third of the page's width is enough for the figure."""
        return bool(self.figure.get_figwidth() <= _THIRD)


def draw_sweeps(summary: ComparisonSummary) -> Iterator[Picture]:
    """Draw what the values of each swept setting reach, at the end."""
    rows = {
        name: (row, spread.mean, spread.sd or 0.0)
        for name, row in summary.sweep.items()
        if name in summary.strategies
        and (spread := summary.strategies[name].overall).mean is not None
    }
    for name in dict.fromkeys(name for row, *_ in rows.values() for name in row.values):
        swept = [row.values[name] for row, *_ in rows.values() if name in row.values]
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in swept)
        scores: list[Score] = []
        for label, (row, mean, sd) in rows.items():
            others = {key: value for key, value in row.values.items() if key != name}
            if numbers and name in row.values:
                said = (f"{key}={value}" for key, value in others.items())
                curve, x = " ".join([row.strategy, *said]), float(row.values[name])
            elif name in row.values or not others:
                curve, x = label, None
            else:
                continue  # a value of another setting
            scores.append(Score("", curve, x, 100 * mean, 100 * sd))
        figure = score_curves(
            scores,
            title=", ".join(summary.tasks),
            measure=f"{summary.overall} at the end (%)",
            axis=name,
            logarithmic=numbers and min(swept) > 0 and max(swept) >= _WIDE * min(swept),
        )
        title = f"{summary.overall[0].upper()}{summary.overall[1:]} at the end, by {name}"
        yield Picture(f"sweep-{name}", title, figure)


def draw_matrices(data: ReportData) -> Iterator[Picture]:
    """Draw R of the first strategies, the mean over runs of one order."""
    for name in data.strategies[:MOST_STRATEGIES]:
        results = data.results(name)
        results = [result for result in results if result.tasks == results[0].tasks]
        tasks = results[0].tasks
        size = range(len(results[0].R))
        R = [[mean_known([result.R[i][j] for result in results]) for j in size] for i in size]
        over = f", mean of {len(results)} runs" if len(results) > 1 else ""
        title = f"{name}: score on each task (columns) after learning each (rows){over}"
        figure = r_matrix_heatmap(R, tasks, title=f"R of {name}")
        numbers = None
        if len(tasks) <= _MOST_IN_TABLES:
            numbers = make_matrix(R, tasks, caption=title, corner="after", strategy=name)
        yield Picture(f"R-{data.file_name(name)}", title, figure, numbers, name)


def draw_curve(
    data: ReportData,
    name: str,
    title: str,
    measure: str,
    compute: Callable[[Sequence[RunResult]], list[list[float | None]]],
) -> Iterator[Picture]:
    """Draw a measure along the stream for the strategies that have one, the best ones named."""
    curves = {strategy: compute(data.results(strategy)) for strategy in data.strategies}
    means = {s: list(map(mean_known, zip(*runs, strict=True))) for s, runs in curves.items()}
    means = {s: line for s, line in means.items() if any(value is not None for value in line)}
    curves = {s: curves[s] for s in means}
    tasks = data.summary.tasks
    if not curves or len(tasks) == 1:
        return
    if data.summary.orders:
        tasks = [f"task {number + 1}" for number in range(len(tasks))]
    numbers = None
    if len(tasks) <= _MOST_IN_TABLES:
        cells = tuple(make_row(s, *map(make_points, line)) for s, line in means.items())
        numbers = Table(f"{title}, in points", ("strategy", *tasks), cells)
    figure = stream_curves(curves, tasks, title=title, measure=measure)
    yield Picture(f"curve-{name}", title, figure, numbers)


def draw_reliability(data: ReportData, name: str) -> Picture:
    """Draw accuracy against confidence on each task, in the first run of a strategy."""
    result = data.results(name)[0]
    title = f"{name}: accuracy against confidence on each task's test rows, seed {result.seed}"
    bins = {task: ReliabilityBins.from_lists(lists) for task, lists in result.reliability.items()}
    figure = reliability_panels(bins, title=f"Reliability of {name}")
    return Picture(f"reliability-{data.file_name(name)}", title, figure, strategy=name)


def draw_overlaps(data: ReportData) -> Iterator[Picture]:
    """Draw the share of each task's region that lies in each other's, in the first run."""
    for name in data.strategies:
        result = data.results(name)[0]
        if result.overlap is None or len(result.overlap) < 2:
            continue
        shares = {
            (result.tasks[i], result.tasks[j]): share
            for i, row in enumerate(result.overlap)
            for j, share in enumerate(row)
            if share is not None
        }
        title = f"{name}: share of each task's region (columns) that lies in another's (rows)"
        figure = share_heatmaps(
            {f"seed {result.seed}": shares},
            title=f"Overlap of the regions of {name}",
            x_label="region of",
            y_label="lies in the region of",
        )
        yield Picture(f"overlap-{data.file_name(name)}", title, figure, strategy=name)


def draw_bytes(summary: ComparisonSummary) -> Iterator[Picture]:
    """Draw what strategies are compared by against bytes, where there are several."""
    points = {
        name: (row.overall.mean, row.overall.sd or 0.0, row.bytes_per_task.mean or 0.0)
        for name, row in summary.strategies.items()
        if row.overall.mean is not None
    }
    if len(points) > 1:
        overall = summary.overall
        title = f"{overall[0].upper()}{overall[1:]} against the bytes that a task adds"
        yield Picture("bytes", title, byte_scatter(points, title=title, measure=overall))
