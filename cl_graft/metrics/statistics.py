"""Confidence intervals, paired tests, and corrections for many tests at once.

Tests as in Fu et al., 2023, App. A.7 and Fig. 4 (https://arxiv.org/abs/2211.15583).
`benchmarks/error_rates.py` simulates how often each of them is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from scipy import stats

LEAST_SAMPLES = 3
"""Fewest values of which an interval or a test says anything: two show hardly any spread, and a t
interval of two is 18 standard errors wide."""

_ROUNDING = 1e-12
"""Differences of values that are this small beside them are the rounding of float64."""

_SMALLEST = 1e-150
"""Differences that are this small have squares that float64 takes for 0."""


def mean_interval(
    values: Sequence[float], *, level: float = 0.95
) -> tuple[float, tuple[float, float] | None]:
    """Return the mean of values and its confidence interval by Student's t.

    Args:
        values: Independent ones, such as one a seed. Values of one seed on several orders of tasks
            are not: average them first.
        level: How often such an interval holds the true mean of normal values, in (0, 1).

    Returns:
        The mean, and the interval's ends; None for fewer than three values, and for equal ones,
        which show no spread: of these nothing is known.

    Raises:
        ValueError: If there are no values.

    Examples:
        >>> mean, (low, high) = mean_interval([0.80, 0.82, 0.84])
        >>> round(mean, 2), round(low, 2), round(high, 2)
        (0.82, 0.77, 0.87)
        >>> mean_interval([0.80, 0.82])
        (0.81, None)
    """
    if not values:
        raise ValueError("no values to average")
    count = len(values)
    middle = math.fsum(values) / count
    if count < LEAST_SAMPLES or _equal(values):
        return middle, None
    low, high = stats.t.interval(level, count - 1, loc=middle, scale=stats.sem(values))
    return middle, (float(low), float(high))


def paired_t_test(
    first: Sequence[float], second: Sequence[float]
) -> tuple[float | None, float | None]:
    """Test whether the mean of first − second is 0 (Student's paired t-test, two-sided).

    Args:
        first: Scores of one method, one a seed.
        second: Scores of the other with the same seeds.

    Returns:
        t, and the chance p of one as large where the mean is 0; (None, None) for fewer than three
        pairs and for equal differences, of which nothing is known.

    Raises:
        ValueError: If the lengths differ or there is no pair.

    Examples:
        >>> t, p = paired_t_test([0.90, 0.92, 0.91], [0.80, 0.85, 0.78])
        >>> round(t, 1), round(p, 2)
        (5.8, 0.03)
    """
    if len(first) != len(second) or not first:
        raise ValueError(
            f"expected two lists of one length of at least 1, got {len(first)} and {len(second)} "
            "values"
        )
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(differences) < LEAST_SAMPLES or _equal(differences, beside=[*first, *second]):
        return None, None
    test: Any = stats.ttest_1samp(differences, 0.0)
    return float(test.statistic), float(test.pvalue)


def holm(chances: Sequence[float]) -> list[float]:
    """Correct the p values of several tests, so that any false alarm among them is rare.

    Holm, 1979, "A Simple Sequentially Rejective Multiple Test Procedure",
    https://www.jstor.org/stable/4615733: the i-th smallest of m is multiplied by m − i + 1, and
    none is below one that was smaller.

    Returns:
        The corrected values, at most 1, in the order given.

    Examples:
        >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(chances)), key=lambda number: chances[number])
    corrected, least = [0.0] * len(chances), 0.0
    for rank, number in enumerate(order):
        least = max(least, min(1.0, (len(chances) - rank) * chances[number]))
        corrected[number] = least
    return corrected


def _equal(values: Sequence[float], *, beside: Sequence[float] = ()) -> bool:
    """Return whether values differ by no more than rounding, of them or of what they came from."""
    largest = max(map(abs, [*values, *beside]))
    return max(values) - min(values) <= max(_ROUNDING * largest, _SMALLEST)
