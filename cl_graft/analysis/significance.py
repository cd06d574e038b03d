"""Is a difference more than chance: paired t-tests and rank correlation.

Tests as in Fu et al., 2023, App. A.7 and Fig. 4 (https://arxiv.org/abs/2211.15583).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["paired_t_test", "spearman"]


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
    count = _checked(first, second, least=2)
    differences = [a - b for a, b in zip(first, second, strict=True)]
    mean = math.fsum(differences) / count
    spread = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / (count - 1))
    if spread == 0:
        return (0.0, 1.0) if mean == 0 else (math.copysign(math.inf, mean), 0.0)
    t = mean / (spread / math.sqrt(count))
    return t, _two_sided(t, count - 1)


def spearman(first: Sequence[float], second: Sequence[float]) -> tuple[float | None, float | None]:
    """Return Spearman's rank correlation ρ, and its two-sided p by Student's t with n − 2 degrees.

    Equal values share their mean rank.

    Returns:
        (ρ, p); (None, None) where one side is constant.

    Raises:
        ValueError: If the lengths differ or there are fewer than three pairs.
    """
    count = _checked(first, second, least=3)
    x, y = _centred_ranks(first), _centred_ranks(second)
    norm = math.sqrt(math.fsum(a * a for a in x) * math.fsum(b * b for b in y))
    if norm == 0:
        return None, None
    rho = math.fsum(a * b for a, b in zip(x, y, strict=True)) / norm
    rho = max(-1.0, min(1.0, rho))
    if abs(rho) == 1:
        return rho, 0.0
    return rho, _two_sided(rho * math.sqrt((count - 2) / (1 - rho * rho)), count - 2)


def _checked(first: Sequence[float], second: Sequence[float], *, least: int) -> int:
    if len(first) != len(second) or len(first) < least:
        raise ValueError(
            f"expected two lists of one length of at least {least}, "
            f"got {len(first)} and {len(second)} values"
        )
    return len(first)


def _centred_ranks(values: Sequence[float]) -> list[float]:
    """Return ranks from 1, equal values sharing theirs, less their mean."""
    below = [sum(other < value for other in values) for value in values]
    equal = [sum(other == value for other in values) for value in values]
    middle = (len(values) + 1) / 2
    return [b + (e + 1) / 2 - middle for b, e in zip(below, equal, strict=True)]


def _two_sided(t: float, degrees: int) -> float:
    """Return P(|T| ≥ |t|) of Student's distribution, by its finite series.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan(abs(t) / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for j in range(1 + odd, degrees, 2):
        total += term
        term *= cosine * cosine * j / (j + 1)
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max(0.0, 1 - inside)
