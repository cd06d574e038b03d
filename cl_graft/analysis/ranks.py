"""Average ranks of methods over many comparisons, and how far apart they have to be.

Demšar, 2006, "Statistical Comparisons of Classifiers over Multiple Data Sets",
https://www.jmlr.org/papers/v7/demsar06a.html. Ranks take no notice of how hard a task is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

__all__ = ["average_ranks", "critical_difference"]


def average_ranks(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Rank the methods in every comparison, 1 for the best, and average.

    Args:
        scores: By method, its scores in the same comparisons (a task with a seed, say); equal ones
            share their mean rank.

    Returns:
        The mean rank of each method, best first.

    Raises:
        ValueError: If methods have other numbers of scores, or none.
    """
    sizes = {len(own) for own in scores.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"every method needs the same comparisons, got {sorted(sizes)} scores")
    ranks = stats.rankdata(-np.array(list(scores.values())), axis=0).mean(axis=1)
    found = dict(zip(scores, map(float, ranks), strict=True))
    return dict(sorted(found.items(), key=lambda row: row[1]))


def critical_difference(methods: int, comparisons: int, *, alpha: float = 0.05) -> float:
    """Return by how much average ranks have to differ to differ significantly (Nemenyi's test).

    Args:
        methods: How many methods are ranked, at least 2.
        comparisons: In how many comparisons, at least 1.
        alpha: The chance of a false alarm.

    Raises:
        ValueError: If there are too few.
    """
    if methods < 2 or comparisons < 1:
        raise ValueError(f"nothing to compare: {methods} methods, {comparisons} comparisons")
    spread = float(stats.studentized_range.isf(alpha, methods, math.inf)) / math.sqrt(2)
    return spread * math.sqrt(methods * (methods + 1) / (6 * comparisons))
