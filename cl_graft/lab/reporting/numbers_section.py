"""Numbers that regression tasks are answered with in a report: a scatter plot, scores, errors.

The texts of rows are rows of the data, so a page has them only where it was asked for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cl_graft.kinds.rows import Row
from cl_graft.lab.figures.number_panels import number_panels
from cl_graft.lab.reporting.pictures import MOST_STRATEGIES, Picture
from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.reporting.tables import Cell, Table
from cl_graft.lab.results.answered_numbers import NumberScores, TaskNumbers
from cl_graft.lab.results.formatting import points, row_text
from cl_graft.metrics.figure_style import MOST_PANELS

__all__ = ["draw_numbers", "largest_errors", "number_table", "numbers_text"]

_ROWS = 10
"""Rows with the largest errors of a task."""

_MOST_POINTS = 10_000
"""Points of all scatter plots of a page, after which further strategies have none."""


def numbers_text(data: ReportData) -> str:
    """Return the paragraph on regression tasks before the tables."""
    tasks = [found for own in data.numbers.values() for found in own.values()]
    part = any(len(found.shown) < found.rows for found in tasks)
    rows = (
        "test rows at equal distances, and those with the largest errors" if part else "test rows"
    )
    return (
        f"Of a regression, the figures show the right number and the answer at the end of {rows}; "
        "a dot on the dashed line is a right answer. Correlations and the mean error are over all "
        "test rows."
    )


def number_table(data: ReportData) -> Table:
    """Write correlations and the mean error of each strategy and task."""
    rows = [
        (
            Cell(strategy),
            Cell(task),
            *(cell for scores in (found.learned, found.end) for cell in _score_columns(scores)),
            Cell(f"{found.rows:,}", found.rows),
        )
        for strategy, tasks in data.numbers.items()
        for task, found in tasks.items()
    ]
    names = ("Pearson", "Spearman", "mean error")
    head = [f"{name} {when}" for when in ("when learned", "at the end") for name in names]
    caption = "Answers of regression tasks: correlations in points, mean size of the error"
    return Table(caption, ("strategy", "task", *head, "test rows"), tuple(rows))


def draw_numbers(data: ReportData) -> Iterator[Picture]:
    """Draw answers against right numbers, in the first run of each of the first strategies."""
    drawn = 0
    for strategy, tasks in list(data.numbers.items())[:MOST_STRATEGIES]:
        own = dict(list(tasks.items())[:MOST_PANELS])
        drawn += sum(len(found.shown) for found in own.values())
        if drawn > _MOST_POINTS:
            return
        title = f"{strategy}: answers at the end against the right numbers"
        figure = number_panels(
            {
                task: ([one.right for one in found.shown], [one.answer for one in found.shown])
                for task, found in own.items()
            },
            title=f"Numbers of {strategy}",
            notes={task: _note(found.end) for task, found in own.items()},
        )
        marks = [
            [f"{task}, row {one.row}: right {one.right:.4g}, answer {one.answer:.4g}"
             for one in found.shown]
            for task, found in own.items()
        ]  # fmt: skip
        name = f"numbers-{data.file_name(strategy)}"
        yield Picture(name, title, figure, strategy=strategy, marks={strategy: marks})


def largest_errors(
    strategy: str, task: str, found: TaskNumbers, rows: Sequence[Row] | None
) -> Table:
    """List the rows with the largest errors at the end, with their texts where there are rows."""
    shown: list[tuple[Cell, ...]] = []
    for one in found.largest_errors(_ROWS):
        values = (one.right, one.answer, one.error)
        cells = (Cell(f"{one.row:,}", one.row), *(Cell(f"{v:z.4g}", v) for v in values))
        if rows is not None:
            cells += (Cell(row_text(rows[one.row]) if one.row < len(rows) else "–"),)
        shown.append(cells)
    head = ("row", "right number", "answer", "error", *(("text",) if rows is not None else ()))
    caption = f"{task}, {strategy}: test rows with the largest errors at the end, counted from 0"
    return Table(caption, head, tuple(shown), sortable=False, strategy=strategy)


def _score_columns(scores: NumberScores | None) -> tuple[Cell, ...]:
    if scores is None:
        return (Cell("–"),) * 3
    return (
        Cell(points(scores.pearson), scores.pearson),
        Cell(points(scores.spearman), scores.spearman),
        Cell(f"{scores.error:.4g}", scores.error),
    )


def _note(scores: NumberScores) -> str:
    return f"Pearson {points(scores.pearson)}, Spearman {points(scores.spearman)}"
