"""Measures along the stream: their value after each task, for every run of a strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cl_graft.figures.stream_curves import Curve, mean_known
from cl_graft.metrics import average_accuracy, forgetting
from cl_graft.results.run_results import RunResult

__all__ = ["accuracy_after", "ece_after", "forgetting_after"]


def accuracy_after(results: Sequence[RunResult]) -> Curve:
    """Return the average accuracy over the tasks learned so far, after each."""
    return _curve(results, lambda result, i: average_accuracy(_learned(result, i)))


def forgetting_after(results: Sequence[RunResult]) -> Curve:
    """Return the forgetting of the tasks learned so far, after each; none after the first."""
    return _curve(results, lambda result, i: forgetting(_learned(result, i)) if i else None)


def ece_after(results: Sequence[RunResult]) -> Curve:
    """Return the calibration error, the mean over the tasks learned so far, after each."""
    return _curve(results, lambda result, i: mean_known(result.ece[i][: i + 1]))


def _curve(
    results: Sequence[RunResult], measure: Callable[[RunResult, int], float | None]
) -> Curve:
    return Curve(
        tuple(tuple(measure(result, i) for i in range(len(result.R))) for result in results)
    )


def _learned(result: RunResult, i: int) -> list[list[float | None]]:
    """Return R as it was after task i."""
    return [row[: i + 1] for row in result.R[: i + 1]]
