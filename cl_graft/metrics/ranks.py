"""Average ranks of methods over tasks, and how far apart they have to be.

Demšar, 2006, "Statistical Comparisons of Classifiers over Multiple Data Sets",
https://www.jmlr.org/papers/v7/demsar06a.html. Ranks take no notice of how hard a task is. A task is
one sample, however many seeds it was learned with: what suits a method in one seed suits it in the
next, so scores are averaged over seeds and orders before they are ranked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

__all__ = ["average_ranks", "critical_difference"]


def average_ranks(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Rank the methods on every task, 1 for the best, and average.

    Args:
        scores: By method, its score on each of the same tasks, the mean over seeds; equal ones
            share their mean rank.

    Returns:
        The mean rank of each method, best first.

    Raises:
        ValueError: If methods have other numbers of scores, or none.
    """
    sizes = {len(own) for own in scores.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"every method needs a score on each task, got {sorted(sizes)} scores")
    ranks = stats.rankdata(-np.array(list(scores.values())), axis=0).mean(axis=1)
    found = dict(zip(scores, map(float, ranks), strict=True))
    return dict(sorted(found.items(), key=lambda row: row[1]))


def critical_difference(methods: int, tasks: int, *, alpha: float = 0.05) -> float:
    """Return by how much average ranks have to differ to differ significantly (Nemenyi's test).

    Args:
        methods: How many methods are ranked, at least 2.
        tasks: On how many independent tasks, at least 1. Seeds and orders are no tasks.
        alpha: Chance of any false alarm among all pairs of methods, in (0, 1).

    Raises:
        ValueError: If there are too few.
    """
    if methods < 2 or tasks < 1:
        raise ValueError(f"nothing to compare: {methods} methods, {tasks} tasks")
    spread = float(stats.studentized_range.isf(alpha, methods, math.inf)) / math.sqrt(2)
    return spread * math.sqrt(methods * (methods + 1) / (6 * tasks))
