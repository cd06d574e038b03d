"""Scores of tasks with different metrics: which may be averaged, and shares that all may be.

A mean of accuracies and correlations has no unit. So a stream has one value a metric, over the
tasks of that metric, and beside them one average over tasks: that of scores as shares of a
reference, which is per-task fine-tuning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

LEAST_REFERENCE = 0.1
"""Score of the reference from which on a share of it is taken.

Dividing by 0.1 makes ten points of one. Below that, and for correlations of 0 or less, a share says
more of the reference than of what is compared with it.
"""

_SAME = {"f1_of_class_0": "f1"}
"""Metrics that are another one of the table, with their positive label elsewhere."""


def name_metric(metric: str) -> str:
    """Return the metric under whose name a score is averaged with others."""
    return _SAME.get(metric, metric)


def group_by_metric(metrics: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the places of the tasks of each metric, in the order of their first task.

    F1 is one metric, whichever of two labels is the positive one.
    """
    groups: dict[str, list[int]] = {}
    for number, metric in enumerate(metrics):
        groups.setdefault(name_metric(metric), []).append(number)
    return {metric: tuple(places) for metric, places in groups.items()}


def too_small(references: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the tasks whose reference is below `LEAST_REFERENCE`, with their lowest reference.

    A task is left out everywhere if its reference is too small in any seed: shares are averaged
    over the same tasks in each.
    """
    lowest: dict[str, float] = {}
    for scores in references:
        for task, score in scores.items():
            lowest[task] = min(score, lowest.get(task, math.inf))
    return {task: score for task, score in lowest.items() if score < LEAST_REFERENCE}


def average_share(
    scores: Sequence[float | None], references: Sequence[float | None]
) -> float | None:
    """Average scores as shares of references of at least 0.1: 1/n · Σ score / reference.

    A share is not cut: it is above 1 where a score is above its reference, and negative where a
    correlation is. The average is None without tasks, or if a score or a reference is missing.
    """
    shares: list[float] = []
    for score, reference in zip(scores, references, strict=True):
        if score is None or reference is None:
            return None
        if reference < LEAST_REFERENCE:
            raise ValueError(
                f"a share is taken of a reference of at least {LEAST_REFERENCE}, got {reference}; "
                "leave its task out"
            )
        shares.append(score / reference)
    return math.fsum(shares) / len(shares) if shares else None
