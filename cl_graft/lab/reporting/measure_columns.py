"""Columns of the measures of a comparison, alike in every table: one a metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cl_graft.lab.results.comparison import ComparisonSummary, StrategySummary
from cl_graft.lab.results.measures import (
    MEASURES,
    STORED_AS,
    count_tasks,
    has_one_metric,
    measure_title,
    metrics_text,
    tasks_by_metric,
)
from cl_graft.lab.results.normalized_scores import normalization_text
from cl_graft.lab.results.strategy_statistics import Spread

__all__ = [
    "MeasureColumn",
    "average_columns",
    "has_several_metrics",
    "measure_columns",
    "metric_rows",
    "other_columns",
    "summary_notes",
]


@dataclass(frozen=True)
class MeasureColumn:
    """A measure of every strategy.

    Attributes:
        title: Title of the column.
        spreads: The measure over seeds, by strategy.
        lower_is_better: Whether the lowest value is the best.
    """

    title: str
    spreads: dict[str, Spread]
    lower_is_better: bool = False


def has_several_metrics(summary: ComparisonSummary) -> bool:
    """Return whether the tasks of a comparison are scored by several metrics."""
    return not has_one_metric(summary.metrics)


def average_columns(summary: ComparisonSummary) -> list[MeasureColumn]:
    """Return the average of each metric, behind the normalized average where there is one."""
    columns = measure_columns(summary, "average")
    if summary.normalization is None or summary.normalization.missing:
        return columns
    return [_column(summary, summary.overall, lambda row: row.normalized), *columns]


def measure_columns(summary: ComparisonSummary, name: str) -> list[MeasureColumn]:
    """Return a measure of each metric: one column where all tasks have one.

    Args:
        summary: Summary of the comparison.
        name: One of `cl_graft.lab.results.measures.MEASURES`.
    """
    groups = tasks_by_metric(summary.metrics) or {"accuracy": summary.tasks}
    lower = name == "forgetting"
    if len(groups) == 1:
        title = measure_title(name, *groups)
        return [_column(summary, title, lambda row: getattr(row, STORED_AS[name]), lower=lower)]
    return [
        _column(
            summary,
            measure_title(name, metric, tasks=len(tasks)),
            lambda row, metric=metric: getattr(row.by_metric[metric], name),
            lower=lower,
        )
        for metric, tasks in groups.items()
    ]


def metric_rows(summary: ComparisonSummary) -> list[tuple[str, dict[str, list[Spread]]]]:
    """Return the measures of each metric by row: a metric with its tasks, over all strategies.

    Returns:
        For each metric, such as ``"f1 (2 tasks)"``, the values of the strategies by the measure's
        title, of those that any strategy has in any metric. The average is left out.
    """
    rows = summary.strategies.values()
    known = [
        name
        for name in MEASURES[1:]
        if any(getattr(own, name).n for row in rows for own in row.by_metric.values())
    ]
    return [
        (
            f"{metric.replace('_', ' ')} ({count_tasks(len(tasks))})",
            {n.replace("_", " "): [getattr(r.by_metric[metric], n) for r in rows] for n in known},
        )
        for metric, tasks in tasks_by_metric(summary.metrics).items()
    ]


def other_columns(summary: ComparisonSummary) -> list[MeasureColumn]:
    """Return the scores at the end by each metric that is not the tasks' own."""
    return [
        _column(
            summary,
            f"{metric.replace('_', ' ')} ({count_tasks(count)})",
            lambda row, metric=metric: row.other_metrics[metric],
        )
        for metric, count in summary.other_metrics.items()
    ]


def summary_notes(summary: ComparisonSummary) -> list[str]:
    """Say what the measures are means of, where tasks have several metrics."""
    if summary.normalization is None:
        return []
    return [
        metrics_text(summary.metrics),
        normalization_text(summary.normalization, summary.metrics),
    ]


def _column(
    summary: ComparisonSummary,
    title: str,
    value: Callable[[StrategySummary], Spread],
    *,
    lower: bool = False,
) -> MeasureColumn:
    spreads = {name: value(row) for name, row in summary.strategies.items()}
    return MeasureColumn(title, spreads, lower)
