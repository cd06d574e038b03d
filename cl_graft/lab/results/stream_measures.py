"""Measures along the stream: their value after each task, for every run of a strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cl_graft.lab.figures.stream_curves import Curve
from cl_graft.lab.results.measures import measure
from cl_graft.lab.results.normalized_scores import NormalizedScores
from cl_graft.lab.results.run_results import RunResult
from cl_graft.metrics import gain_over_isolated
from cl_graft.metrics.by_metric import group_by_metric


def average_after(results: Sequence[RunResult], metric: str | None = None) -> Curve:
    """Return the average score over the tasks learned so far, after each."""
    return _curve(results, lambda result, i: measure(result, "average", metric, learned=i + 1))


def forgetting_after(results: Sequence[RunResult], metric: str | None = None) -> Curve:
    """Return the forgetting of the tasks learned so far, after each; none after the first."""
    return _curve(results, lambda result, i: measure(result, "forgetting", metric, learned=i + 1))


def normalized_after(results: Sequence[RunResult], scores: NormalizedScores) -> Curve:
    """Return the normalized average over the tasks learned so far, after each."""
    return _curve(results, lambda result, i: scores.average(result, learned=i + 1))


def gain_from_earlier(
    ours: RunResult, isolated: RunResult, *, metric: str | None = None
) -> float | None:
    """Return what earlier tasks gave to later ones, against a run that learned each task alone.

    Args:
        ours: A finished run, such as grafting in prefix mode.
        isolated: A finished run with the same tasks and seed in which no task builds on another:
            grafting with ``mode: isolated``, or independent fine-tuning.
        metric: Metric over whose tasks is averaged; needed where tasks have several.

    Returns:
        `cl_graft.metrics.gain_over_isolated`; None where a score is missing.

    Raises:
        ValueError: If tasks, metrics, data or seeds are others, or no metric is named of several.
    """
    for what in ("tasks", "metrics", "data_fingerprints", "seed"):
        if (here := getattr(ours, what)) != (there := getattr(isolated, what)):
            raise ValueError(f"runs to compare must have the same {what}: {here} and {there}")
    groups = group_by_metric(ours.metrics[task] for task in ours.tasks)
    if metric is None and len(groups) > 1:
        raise ValueError(
            f"tasks are scored by {', '.join(groups)}, of which there is no common mean: "
            "expected the name of one as metric"
        )
    places = None if metric is None else groups.get(metric, ())
    alone = {task: isolated.R[j][j] for j, task in enumerate(isolated.tasks)}
    return gain_over_isolated(ours.R, isolated=[alone[task] for task in ours.tasks], tasks=places)


def _curve(
    results: Sequence[RunResult], measure: Callable[[RunResult, int], float | None]
) -> Curve:
    return Curve(
        tuple(tuple(measure(result, i) for i in range(len(result.R))) for result in results)
    )
