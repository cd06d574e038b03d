"""The pictures of a report: each figure of the page, with its numbers as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from matplotlib.figure import Figure

from cl_graft.grafts.anatomy import Anatomy
from cl_graft.lab.figures.heatmaps import (
    anatomy_panels,
    overlap_heatmap,
    place_names,
    r_matrix_heatmap,
)
from cl_graft.lab.figures.memory_frontier import memory_frontier
from cl_graft.lab.figures.rank_diagram import rank_diagram
from cl_graft.lab.figures.stream_curves import (
    Curve,
    cost_bars,
    mean_known,
    stream_curves,
)
from cl_graft.lab.reporting import tables
from cl_graft.lab.reporting.exports import find_tradeoffs
from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.reporting.tables import Cell, Table
from cl_graft.lab.results.formatting import points
from cl_graft.lab.results.run_results import Matrix, RunResult
from cl_graft.lab.results.strategy_statistics import Ranks
from cl_graft.metrics.calibration import ReliabilityBins
from cl_graft.metrics.figure_style import MOST_PANELS
from cl_graft.metrics.reliability_diagram import reliability_panels

__all__ = [
    "MOST_STRATEGIES",
    "Picture",
    "disjoint_strategies",
    "draw_anatomies",
    "draw_costs",
    "draw_curve",
    "draw_matrices",
    "draw_overlaps",
    "draw_rank_diagram",
    "draw_reliability",
]

MOST_STRATEGIES = 16
"""Strategies that have a matrix and a reliability diagram of their own."""

_HALF = 6.6
"""Inches of half the page's width."""

_MOST_IN_TABLES = 24
"""Tasks up to which a picture has a table."""


@dataclass(frozen=True)
class Picture:
    """A figure of the page, and its numbers as a table.

    Attributes:
        name: Name of the files: letters, digits, dashes and underscores.
        title: Sentence on what the figure shows; screen readers say it.
        figure: The figure.
        table: Numbers of the figure; None where they stand elsewhere.
        strategy: The strategy that it is of alone, if it is of one.
        marks: By strategy, in the order in which the figure was given them, what is said of each
            point of each of its lines, or of its bar, where one points at it.
    """

    name: str
    title: str
    figure: Figure
    table: Table | None = None
    strategy: str = ""
    marks: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)

    @property
    def wide(self) -> bool:
        """Whether the figure needs the page's whole width."""
        return bool(self.figure.get_figwidth() > _HALF)


def draw_rank_diagram(found: Ranks) -> Picture:
    """Draw the average ranks of the strategies."""
    return Picture(
        "ranks",
        "Average rank of each strategy over the tasks, by its mean score over seeds; a bar joins "
        "those that cannot be told apart",
        rank_diagram(found.ranks, found.critical_difference),
        Table(
            "Average ranks",
            ("strategy", "rank"),
            tuple((Cell(n), Cell(f"{r:.2f}", r)) for n, r in found.ranks.items()),
        ),
        marks={name: [(f"average rank {rank:.2f}",)] for name, rank in found.ranks.items()},
    )


def draw_matrices(data: ReportData) -> Iterator[Picture]:
    """Draw R of the first strategies, the mean over runs of one order."""
    for name in data.strategies[:MOST_STRATEGIES]:
        results = data.results(name)
        results = [result for result in results if result.tasks == results[0].tasks]
        R, tasks = _mean_matrix([result.R for result in results]), results[0].tasks
        over = f", mean of {len(results)} runs" if len(results) > 1 else ""
        title = f"{name}: score on each task (columns) after learning each (rows){over}"
        figure = r_matrix_heatmap(R, tasks, title=f"R of {name}")
        numbers = _matrix_table(R, tasks, title, corner="after", strategy=name)
        yield Picture(f"R-{data.file_name(name)}", title, figure, numbers, strategy=name)


def draw_overlaps(data: ReportData) -> Iterator[Picture]:
    """Draw the overlap of regions, of the first run of each strategy in which regions overlap."""
    for name in data.strategies:
        first = data.results(name)[0]
        if not first.overlap or not _overlaps(first.overlap):
            continue
        title = f"{name}: share of region j (columns) that region i (rows) holds, too"
        figure = overlap_heatmap(first.overlap, first.tasks, title=f"Overlap of {name}")
        numbers = _matrix_table(first.overlap, first.tasks, title, corner="region i", strategy=name)
        yield Picture(f"overlap-{data.file_name(name)}", title, figure, numbers, strategy=name)


def disjoint_strategies(data: ReportData) -> list[str]:
    """Return the strategies in whose first run the regions of several tasks share no weight."""
    firsts = {name: data.results(name)[0].overlap for name in data.strategies}
    return [n for n, found in firsts.items() if found and len(found) > 1 and not _overlaps(found)]


def draw_curve(
    data: ReportData,
    name: str,
    title: str,
    measure: str,
    compute: Callable[[Sequence[RunResult]], Curve],
) -> Iterator[Picture]:
    """Draw a measure along the stream for the strategies that have one, the best ones named.

    Args:
        data: Data of the report.
        name: Name of the picture, without "curve".
        title: Title of the picture.
        measure: Label of the vertical axis.
        compute: Results of a strategy to the curve.
    """
    found = {strategy: compute(data.results(strategy)) for strategy in data.strategies}
    found = {s: curve for s, curve in found.items() if any(v is not None for v in curve.middle)}
    if not found or len(data.summary.tasks) == 1:
        return
    tasks = data.summary.tasks
    if data.summary.orders:
        tasks = [f"task {place + 1}" for place in range(len(tasks))]
    cells = tuple(
        (Cell(strategy), *(Cell(points(v), v) for v in curve.middle))
        for strategy, curve in found.items()
    )
    numbers = None
    if len(tasks) <= _MOST_IN_TABLES:
        numbers = Table(f"{title}, in points", ("strategy", *tasks), cells)
    figure = stream_curves(found, tasks, title=title, measure=measure)
    marks = {strategy: [_curve_points(curve, tasks)] for strategy, curve in found.items()}
    yield Picture(f"curve-{name}", title, figure, numbers, marks=marks)


def draw_reliability(data: ReportData, name: str) -> Picture:
    """Draw accuracy against confidence on each task, in the first run of a strategy.

    Args:
        data: Data of the report.
        name: Name of the strategy, whose first run has bins of confidence.
    """
    results = data.results(name)
    result = results[0]
    title = f"{name}: accuracy against confidence on each task's test rows, at the end"
    if len(results) > 1:
        title += f", seed {result.seed}"
    bins = {task: ReliabilityBins.from_lists(own) for task, own in result.reliability.items()}
    figure = reliability_panels(bins, title=f"Reliability of {name}")
    numbers = replace(_bin_table(result), strategy=name)
    return Picture(f"reliability-{data.file_name(name)}", title, figure, numbers, strategy=name)


def draw_anatomies(data: ReportData) -> Iterator[Picture]:
    """Draw where in the model the regions of each strategy lie."""
    for name, found in data.anatomies.items():
        title = f"{name}: share of the weights of each layer and module in each task's region"
        figure = anatomy_panels(found, title=f"Regions of {name}")
        numbers = replace(_layer_table(found, title), strategy=name)
        yield Picture(f"anatomy-{data.file_name(name)}", title, figure, numbers, strategy=name)


def draw_costs(data: ReportData) -> Iterator[Picture]:
    """Draw what strategies are compared by against bytes, and what each strategy cost."""
    if tradeoffs := find_tradeoffs(data.summary):
        overall = data.summary.overall
        title = f"{overall[0].upper()}{overall[1:]} against the bytes that a task adds"
        figure = memory_frontier(tradeoffs, title=title, measure=overall)
        marks = {
            n: [(f"{overall} {points(one.accuracy)}, {one.bytes:,.0f} bytes a task",)]
            for n, one in tradeoffs.items()
        }
        yield Picture("frontier", title, figure, marks=marks)
    kinds = {
        "bytes-a-task": ("bytes_per_task", "What a task adds to what must be stored", "bytes"),
        "passes": ("forward_backward", "Rows that went forward and backward", "rows"),
        "seconds": ("seconds", "Wall time of all phases", "seconds"),
    }
    for name, (measure, title, unit) in kinds.items():
        values = {s: getattr(row, measure).mean for s, row in data.summary.strategies.items()}
        figure = cost_bars(values, title=title, unit=unit, logarithmic=unit == "bytes")
        marks = {s: [] if v is None else [(f"{v:,.5g} {unit}",)] for s, v in values.items()}
        yield Picture(f"cost-{name}", title, figure, marks=marks)


def _matrix_table(
    cells: Sequence[Sequence[float | None]],
    tasks: Sequence[str],
    title: str,
    *,
    corner: str,
    strategy: str,
) -> Table | None:
    if len(tasks) > _MOST_IN_TABLES:
        return None
    return tables.matrix(cells, tasks, caption=title, corner=corner, strategy=strategy)


def _curve_points(curve: Curve, tasks: Sequence[str]) -> list[str]:
    """Say the value at each point of a curve, and its range over runs."""
    said: list[str] = []
    for task, value, ends in zip(tasks, curve.middle, curve.spread, strict=True):
        if value is not None:
            over = f" ({points(ends[0])} to {points(ends[1])} over runs)" if ends else ""
            said.append(f"after {task}: {points(value)}{over}")
    return said


def _bin_table(result: RunResult) -> Table:
    rows = []
    for task, bins in list(result.reliability.items())[:MOST_PANELS]:
        size = len(bins["counts"])
        for place, count in enumerate(bins["counts"]):
            if count:
                confidence, accuracy = bins["confidence"][place], bins["accuracy"][place]
                rows.append(
                    (
                        Cell(task),
                        Cell(f"{place / size:.2f} to {(place + 1) / size:.2f}", place),
                        Cell(f"{count:,.0f}", count),
                        Cell(points(confidence), confidence),
                        Cell(points(accuracy), accuracy),
                    )
                )
    head = ("task", "bin of confidence", "rows", "confidence (%)", "accuracy (%)")
    return Table(f"Bins of confidence of {result.strategy}", head, tuple(rows))


def _layer_table(found: Mapping[str, Anatomy], title: str) -> Table:
    """Write how much of each region lies in each layer."""
    _, layers = place_names(next(iter(found.values())))
    rows = tuple(
        (Cell(task), *(Cell(points(share), share) for share in own.by_layer.tolist()))
        for task, own in found.items()
    )
    return Table(f"{title}: share of the region in each layer, in %", ("task", *layers), rows)


def _overlaps(found: Matrix) -> bool:
    return any(share for i, row in enumerate(found) for j, share in enumerate(row) if i != j)


def _mean_matrix(found: Sequence[Matrix]) -> Matrix:
    size = range(len(found[0]))
    return [[mean_known([matrix[i][j] for matrix in found]) for j in size] for i in size]
