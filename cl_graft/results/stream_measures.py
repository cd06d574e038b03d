"""Measures along the stream: their value after each task, for every run of a strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cl_graft.figures.stream_curves import Curve, mean_known
from cl_graft.metrics import average_accuracy, forgetting, gain_over_isolated
from cl_graft.results.run_results import RunResult

__all__ = ["accuracy_after", "ece_after", "forgetting_after", "gain_from_earlier"]


def accuracy_after(results: Sequence[RunResult]) -> Curve:
    """Return the average accuracy over the tasks learned so far, after each."""
    return _curve(results, lambda result, i: average_accuracy(_learned(result, i)))


def forgetting_after(results: Sequence[RunResult]) -> Curve:
    """Return the forgetting of the tasks learned so far, after each; none after the first."""
    return _curve(results, lambda result, i: forgetting(_learned(result, i)) if i else None)


def ece_after(results: Sequence[RunResult]) -> Curve:
    """Return the calibration error, the mean over the tasks learned so far, after each."""
    return _curve(results, lambda result, i: mean_known(result.ece[i][: i + 1]))


def gain_from_earlier(ours: RunResult, isolated: RunResult) -> float | None:
    """Return what earlier tasks gave to later ones, against a run that learned each task alone.

    Args:
        ours: A finished run, such as grafting in prefix mode.
        isolated: A finished run with the same tasks and seed in which no task builds on another:
            grafting with ``mode: isolated``, or independent fine-tuning.

    Returns:
        `cl_graft.metrics.gain_over_isolated`; None where a score is missing.

    Raises:
        ValueError: If tasks, data or seeds are others.
    """
    for what in ("tasks", "data_fingerprints", "seed"):
        if (here := getattr(ours, what)) != (there := getattr(isolated, what)):
            raise ValueError(f"runs to compare must have the same {what}: {here} and {there}")
    alone = {task: isolated.R[j][j] for j, task in enumerate(isolated.tasks)}
    return gain_over_isolated(ours.R, isolated=[alone[task] for task in ours.tasks])


def _curve(
    results: Sequence[RunResult], measure: Callable[[RunResult, int], float | None]
) -> Curve:
    return Curve(
        tuple(tuple(measure(result, i) for i in range(len(result.R))) for result in results)
    )


def _learned(result: RunResult, i: int) -> list[list[float | None]]:
    """Return R as it was after task i."""
    return [row[: i + 1] for row in result.R[: i + 1]]
