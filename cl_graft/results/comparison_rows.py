"""The table of compared strategies as texts, for the terminal and for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

from cl_graft.results.formatting import spread_text
from cl_graft.results.measures import (
    MEASURES,
    has_one_metric,
    measure,
    measure_title,
    metrics_text,
    tasks_by_metric,
)
from cl_graft.results.normalized_scores import normalization_text, normalize
from cl_graft.results.run_results import RunResult
from cl_graft.results.strategy_statistics import seed_means, spread_over_seeds

__all__ = ["comparison_rows", "measure_notes"]

_COSTS = ("bytes a task", "seconds a task")

_EMPTY = ("", "–")


def comparison_rows(runs: Sequence[RunResult]) -> tuple[str, list[str], list[list[str]]]:
    """Return a table of the measures of each strategy: its title, its columns and its rows.

    Each value is the mean ± standard deviation over seeds: measures in points, then the bytes that
    a task adds and the seconds that it takes, in the mean over tasks. Measures that no run has are
    left out. Where tasks have several metrics, a strategy has a row for each, and one for its
    normalized average.
    """
    seeds = len({run.seed for run in runs})
    title = f"{seeds} seed{'s' if seeds > 1 else ''}, in points"
    strategies = dict.fromkeys(run.strategy for run in runs)
    groups = tasks_by_metric(runs[0].metrics) if runs else {}
    if len(groups) > 1:
        names = (name.replace("_", " ") for name in MEASURES)
        columns = ["strategy", "metric", "tasks", *names, *_COSTS]
        return title, *_without_empty(columns, _rows_by_metric(runs, list(strategies)))
    metric = next(iter(groups), "accuracy")
    rows: list[list[str]] = []
    for strategy in strategies:
        own = [run for run in runs if run.strategy == strategy]
        values = (_over_seeds(own, partial(measure, name=name)) for name in MEASURES)
        rows.append([strategy, *values, *_costs(own)])
    columns = ["strategy", *(measure_title(name, metric) for name in MEASURES), *_COSTS]
    return title, *_without_empty(columns, rows)


def measure_notes(runs: Sequence[RunResult]) -> list[str]:
    """Say what the measures are means of, where tasks have several metrics."""
    if not runs or has_one_metric(runs[0].metrics):
        return []
    notes = [metrics_text(runs[0].metrics)]
    if len({run.strategy for run in runs}) > 1:
        notes.append(normalization_text(normalize(runs).normalization, runs[0].metrics))
    return notes


def _rows_by_metric(runs: Sequence[RunResult], strategies: Sequence[str]) -> list[list[str]]:
    scores = normalize(runs)
    groups = tasks_by_metric(runs[0].metrics)
    rows: list[list[str]] = []
    for strategy in strategies:
        own = [run for run in runs if run.strategy == strategy]
        costs = _costs(own)
        for metric, tasks in groups.items():
            values = (
                _over_seeds(own, partial(measure, name=name, metric=metric)) for name in MEASURES
            )
            rows.append([strategy, metric, str(len(tasks)), *values, *costs])
            costs = ["", ""]  # once a strategy
        if not scores.normalization.missing:
            count, value = len(scores.normalization.tasks), _over_seeds(own, scores.average)
            rows.append([strategy, "normalized", str(count), value, "–", "–", "–", "", ""])
    return rows


def _costs(runs: Sequence[RunResult]) -> list[str]:
    """Write the bytes and the seconds of a task, in the mean over tasks."""

    def count_bytes(run: RunResult) -> float | None:
        return fmean(run.bytes.values()) if run.bytes else None

    def seconds(run: RunResult) -> float | None:
        return run.total_seconds / len(run.seconds) if run.seconds else None

    return [
        spread_text(spread_over_seeds(seed_means(runs, count_bytes)), scale=1, digits=0),
        spread_text(spread_over_seeds(seed_means(runs, seconds)), scale=1),
    ]


def _without_empty(columns: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Leave out the columns in which no row has a value."""
    kept = [j for j in range(len(columns)) if not rows or any(row[j] not in _EMPTY for row in rows)]
    return [columns[j] for j in kept], [[row[j] for j in kept] for row in rows]


def _over_seeds(runs: Sequence[RunResult], value: Callable[[RunResult], float | None]) -> str:
    return spread_text(spread_over_seeds(seed_means(runs, value)))
