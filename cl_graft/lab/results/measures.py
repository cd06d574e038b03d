"""Measures of runs, one a metric, and the names that files and tables give them.

Where all tasks of a stream have one metric, a measure is over all tasks. Where they have several,
there is one of each metric, over its tasks; a mean over tasks of different metrics is never formed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from cl_graft.metrics import (
    accuracy_over_stream,
    average_accuracy,
    backward_transfer,
    backward_transfer_over_stream,
    forgetting,
    forward_transfer,
    forward_transfer_over_stream,
)
from cl_graft.metrics.by_metric import group_by_metric

if TYPE_CHECKING:
    from cl_graft.lab.results.run_results import RunResult


_OF_R = {
    "average": average_accuracy,
    "backward_transfer": backward_transfer,
    "forgetting": forgetting,
    "average_over_stream": accuracy_over_stream,
    "backward_transfer_over_stream": backward_transfer_over_stream,
    "forward_transfer_over_stream": forward_transfer_over_stream,
}

MEASURES = ("average", "backward_transfer", "forward_transfer", "forgetting")
"""Measures that every table shows, in their order."""

OVER_SEEDS = (
    *MEASURES,
    "average_over_stream",
    "backward_transfer_over_stream",
    "forward_transfer_over_stream",
)
"""Measures that a summary holds."""

STORED_AS = {
    **{name: name for name in OVER_SEEDS},
    "average": "average_accuracy",
    "average_over_stream": "accuracy_over_stream",
}
"""Fields that hold the measures of a stream with one metric, in results and in summaries."""


def tasks_by_metric(metrics: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of the tasks of each metric."""
    names = list(metrics)
    groups = group_by_metric(metrics.values())
    return {metric: [names[number] for number in places] for metric, places in groups.items()}


def has_one_metric(metrics: Mapping[str, str]) -> bool:
    """Return whether all tasks are scored by one metric, so that their scores can be averaged."""
    return len(group_by_metric(metrics.values())) <= 1


def measure(
    run: RunResult, name: str, metric: str | None = None, *, learned: int | None = None
) -> float | None:
    """Return a measure of a run.

    Args:
        run: Results of the run.
        name: ``"average"``, or what a function of `cl_graft.metrics` on R is called.
        metric: Metric over whose tasks is averaged; None means all tasks.
        learned: Number of tasks after which is measured; None means all that were learned.

    Returns:
        The measure; None where a score is missing, no task has the metric, or none is named and
        tasks have several.
    """
    same_metric = has_one_metric(run.metrics)
    if metric is None and not same_metric:
        return None
    if same_metric and learned is None and name in MEASURES:
        return getattr(run, STORED_AS[name])
    size = len(run.R) if learned is None else learned
    R = [row[:size] for row in run.R[:size]]
    groups = group_by_metric(run.metrics[task] for task in run.tasks[:size])
    places = range(size) if metric is None else groups.get(metric, ())
    if name == "forward_transfer":
        return forward_transfer(R, baseline=run.baseline[:size], tasks=places)
    return _OF_R[name](R, tasks=places)


def measure_along(
    runs: Sequence[RunResult], name: str, metric: str | None = None
) -> list[list[float | None]]:
    """Return a measure over the tasks learned so far, after each, a list for each run."""
    return [[measure(r, name, metric, learned=i + 1) for i in range(len(r.R))] for r in runs]


def named_measures(run: RunResult) -> dict[str, float | None]:
    """Return measures of a run under the names that files give them, those of each metric."""
    same_metric = has_one_metric(run.metrics)
    return {
        measure_name(name, metric, alone=same_metric): measure(run, name, metric)
        for metric in tasks_by_metric(run.metrics)
        for name in MEASURES
    }


def other_metrics(run: RunResult) -> dict[str, int]:
    """Return the metrics of a run that are not its tasks' own, with the number of their tasks."""
    return dict(Counter(metric for scores in run.other_scores.values() for metric in scores))


def mean_other_score(run: RunResult, metric: str) -> float | None:
    """Return the mean over tasks of the score at the end by a metric that is not their own."""
    scores = [by_metric[metric] for by_metric in run.other_scores.values() if metric in by_metric]
    return fmean(scores) if scores else None


def measure_name(name: str, metric: str, *, alone: bool) -> str:
    """Return a measure's name in files, such as ``"average_f1"``."""
    if name.startswith("average"):
        return name.replace("average", metric if name != "average" else f"average_{metric}")
    return name if alone else f"{name}_{metric}"


def measure_title(name: str, metric: str, *, tasks: int | None = None) -> str:
    """Return a measure's name in tables, such as ``"average f1 (2 tasks)"``.

    The number of tasks is given where the stream has several metrics.
    """
    title = name.replace("_", " ")
    if name == "average":
        title = f"average {metric.replace('_', ' ')}"
        return title if tasks is None else f"{title} ({count_tasks(tasks)})"
    return title if tasks is None else f"{title}, {metric.replace('_', ' ')}"


def overall_title(metrics: Mapping[str, str]) -> str:
    """Return the name of the measure by which strategies are compared."""
    groups = tasks_by_metric(metrics)
    if len(groups) > 1:
        return "normalized average"
    return measure_title("average", next(iter(groups), "accuracy"))


def count_tasks(count: int) -> str:
    """Write a number of tasks."""
    return f"{count} task{'' if count == 1 else 's'}"


def metrics_text(metrics: Mapping[str, str]) -> str:
    """Say over which tasks is averaged where tasks have several metrics."""
    groups = tasks_by_metric(metrics)
    said = "; ".join(f"{metric} of {', '.join(names)}" for metric, names in groups.items())
    return (
        f"Scores: {said}. Averages, transfers and forgetting are each over the tasks of one "
        "metric, never over different units."
    )
