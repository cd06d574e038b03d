"""Is a difference more than chance: intervals, paired tests, and tests that were many.

Tests as in Fu et al., 2023, App. A.7 and Fig. 4 (https://arxiv.org/abs/2211.15583), by
`scipy.stats`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

__all__ = ["holm", "mean_interval", "paired_t_test", "spearman"]


def mean_interval(
    values: Sequence[float], *, level: float = 0.95
) -> tuple[float, tuple[float, float] | None]:
    """Return the mean of values and its confidence interval by Student's t.

    Args:
        values: One a seed, or one an order of tasks.
        level: How often such an interval holds the true mean, in (0, 1).

    Returns:
        The mean, and the interval's ends; None for a single value, of which nothing is known.

    Raises:
        ValueError: If there are no values.
    """
    if not values:
        raise ValueError("no values to average")
    count = len(values)
    middle = math.fsum(values) / count
    if count == 1:
        return middle, None
    error = math.sqrt(math.fsum((v - middle) ** 2 for v in values) / (count - 1) / count)
    half = float(stats.t.ppf(0.5 + level / 2, count - 1)) * error
    return middle, (middle - half, middle + half)


def paired_t_test(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Test whether the mean of first − second is 0 (Student's paired t-test, two-sided).

    Args:
        first: Scores of one method, one a seed.
        second: Scores of the other with the same seeds.

    Returns:
        t, and the chance p of one as large where the mean is 0. Equal differences give t = ±∞ and
        p = 0, or t = 0 and p = 1 where they are 0.

    Raises:
        ValueError: If the lengths differ or there are fewer than two pairs.
    """
    _check(first, second, least=2)
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(set(differences)) == 1:
        same = differences[0]
        return (0.0, 1.0) if same == 0 else (math.copysign(math.inf, same), 0.0)
    t, p = map(float, stats.ttest_1samp(differences, 0.0))
    return t, p


def holm(chances: Sequence[float]) -> list[float]:
    """Correct the p values of several tests, so that any false alarm among them is rare.

    Holm, 1979, "A Simple Sequentially Rejective Multiple Test Procedure",
    https://www.jstor.org/stable/4615733: the i-th smallest of m is multiplied by m − i + 1, and
    none is below one that was smaller.

    Returns:
        The corrected values, at most 1, in the order given.
    """
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    corrected, least = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(chances) - rank) * chances[place]))
        corrected[place] = least
    return corrected


def spearman(first: Sequence[float], second: Sequence[float]) -> tuple[float | None, float | None]:
    """Return Spearman's rank correlation ρ, and its two-sided p by Student's t with n − 2 degrees.

    Equal values share their mean rank.

    Returns:
        (ρ, p); (None, None) where one side is constant.

    Raises:
        ValueError: If the lengths differ or there are fewer than three pairs.
    """
    _check(first, second, least=3)
    if len(set(first)) == 1 or len(set(second)) == 1:
        return None, None
    rho, p = map(float, stats.spearmanr(first, second))
    return rho, p


def _check(first: Sequence[float], second: Sequence[float], *, least: int) -> None:
    if len(first) != len(second) or len(first) < least:
        raise ValueError(
            f"expected two lists of one length of at least {least}, "
            f"got {len(first)} and {len(second)} values"
        )
