"""The table of compared strategies as texts, for the terminal and for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean

from cl_graft.errors import join_names
from cl_graft.lab.results.formatting import spread_text
from cl_graft.lab.results.measures import (
    MEASURES,
    has_one_metric,
    measure,
    measure_title,
    metrics_text,
    tasks_by_metric,
)
from cl_graft.lab.results.normalized_scores import normalization_text, normalize
from cl_graft.lab.results.run_results import RunResult, find_method_name
from cl_graft.lab.results.strategy_statistics import seed_means, spread_over_seeds

__all__ = ["comparison_rows", "measure_notes", "note_on_rows"]

_COSTS = ("bytes a task", "seconds a task")

_EMPTY = ("", "–")

_MANY = 1.5
"""Ratio of training rows from which it is said."""


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
    """Say what the measures are means of, and which strategies trained on many more rows."""
    rows: dict[str, list[int]] = {}
    for run in runs:
        rows.setdefault(run.strategy, []).append(run.total_passes.forward_backward)
    note = note_on_rows({name: fmean(own) for name, own in rows.items()})
    notes = [note] if note else []
    if not runs or has_one_metric(runs[0].metrics):
        return notes
    notes.insert(0, metrics_text(runs[0].metrics))
    if len({run.strategy for run in runs}) > 1:
        notes.insert(1, normalization_text(normalize(runs).normalization, runs[0].metrics))
    return notes


def note_on_rows(rows: Mapping[str, float]) -> str:
    """Say which strategies trained on far more rows than another; empty where none did.

    Args:
        rows: Rows that went forward and backward in all, by strategy.

    Examples:
        >>> print(note_on_rows({"grafting": 5000, "naive": 2000, "lora": 2000}))
        Training rows differ: grafting had 2.5 times as many as naive.
    """
    known = {name: count for name, count in rows.items() if count}
    if not known:
        return ""
    fewest = min(known, key=lambda name: known[name])
    many = {n: times for n, count in known.items() if (times := count / known[fewest]) >= _MANY}
    if not many:
        return ""
    said = join_names(f"{name} had {times:.1f}" for name, times in many.items())
    note = f"Training rows differ: {said} times as many as {fewest}."
    alone = [count for name, count in known.items() if find_method_name(name) == "independent"]
    if alone and (factor := max(known.values()) / max(alone)) >= _MANY:
        note += (
            f" --sweep independent.times_steps=1,{factor:.1f} adds independent fine-tuning with "
            "as many rows as the most."
        )
    return note


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
