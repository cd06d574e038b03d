"""How steady a method is: the spread of its scores over seeds or over samples of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cl_graft.runtime.seeding import permutation

__all__ = ["Stability", "stability", "without_a_share"]


@dataclass(frozen=True)
class Stability:
    """Scores of repeated runs.

    Attributes:
        mean: Their mean.
        deviation: Their sample standard deviation (n − 1); 0 for a single run.
        runs: How many there are.
    """

    mean: float
    deviation: float
    runs: int


def stability(scores: Sequence[float]) -> Stability:
    """Summarise the scores of repeated runs (Fu et al., 2023, Tables 1 and 2).

    https://arxiv.org/abs/2211.15583.

    Raises:
        ValueError: If there are none.
    """
    count = len(scores)
    if not count:
        raise ValueError("stability needs the score of at least one run, got none")
    mean = math.fsum(scores) / count
    spread = math.fsum((score - mean) ** 2 for score in scores)
    return Stability(mean, math.sqrt(spread / (count - 1)) if count > 1 else 0.0, count)


def without_a_share(rows: int, *, share: float = 0.1, seed: int) -> list[int]:
    """Return which rows remain where a share is left out at random, ascending.

    The data perturbation of Fu et al., 2023, Table 2 (https://arxiv.org/abs/2211.15583), which
    leaves out 10 %.

    Raises:
        ValueError: If `share` is not in [0, 1), or no row would remain.
    """
    left = rows - round(share * rows)
    if not 0 <= share < 1 or left < 1:
        raise ValueError(f"share must be in [0, 1) and leave a row of {rows}, got {share}")
    return sorted(permutation(rows, seed, "perturbation").tolist()[:left])
