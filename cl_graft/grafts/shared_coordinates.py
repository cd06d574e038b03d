"""Estimates of how much of a later region earlier tasks will own.

Where a coordinate has one owner, a task does not own the part of its region that earlier regions
hold. If tasks are alike, the share of a next region that no earlier one holds is about that of
coordinates in one region only (Good and Turing's estimate), and it shrinks at a rate that the
coordinates in two regions tell (Chao et al., 2014, https://doi.org/10.1890/13-0133.1, for
incidences).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import torch

from cl_graft.grafts.region import Region

__all__ = [
    "average_owned_before",
    "count_shared",
    "find_drop_threshold",
    "find_first_task",
    "predict_owned_before",
]

_FARTHEST = 100
"""Times the tasks there are: no prediction goes further."""


def count_shared(regions: Sequence[Region]) -> dict[int, int]:
    """Return how many coordinates are in exactly m of the regions, by m from 1.

    Examples:
        >>> from cl_graft.grafts.region import Layout
        >>> layout = Layout.of({"weight": torch.zeros(5)})
        >>> first, second = (Region.of(layout, index) for index in ([0, 1, 2], [2, 3]))
        >>> count_shared([first, second])
        {1: 3, 2: 1}
    """
    if not any(len(region) for region in regions):
        return {}
    _, times = torch.cat([region.index for region in regions]).unique(return_counts=True)
    return {m: count for m, count in enumerate(times.bincount().tolist()) if count}


def average_owned_before(shared: Mapping[int, int], tasks: int) -> list[float]:
    """Return the share that is owned before the first, second… task, on average over all orders.

    Exact: of m regions that share a coordinate, one at place n owns it if the others come later,
    which has the chance C(T - m, n - 1) / C(T - 1, n - 1).

    Args:
        shared: The counts of `count_shared`.
        tasks: T, how many tasks there are.

    Examples:
        >>> average_owned_before({1: 2, 2: 1}, 2)
        [0.0, 0.5]
    """
    sizes = sum(m * count for m, count in shared.items())
    found = []
    for before in range(tasks if sizes else 0):
        chances = {m: math.comb(tasks - m, before) / math.comb(tasks - 1, before) for m in shared}
        found.append(1 - sum(m * count * chances[m] for m, count in shared.items()) / sizes)
    return found


def predict_owned_before(shared: Mapping[int, int], tasks: int, *, task: int) -> float:
    """Return the share of a later task's region that others will own: 1 - (Q1 / U) · Aᵗ.

    t = task - T, Q1 and Q2 coordinates are in one and in two regions, U = Σ m·Qm, and
    A = (T - 1)·Q1 / ((T - 1)·Q1 + 2·Q2). The source calls it good up to about twice the tasks.

    Args:
        shared: The counts of `count_shared`, not empty.
        tasks: T, how many tasks there are, at least 2.
        task: Number of the task, from T + 1.

    Examples:
        >>> round(predict_owned_before({1: 60, 2: 20}, 3, task=4), 2)
        0.55
    """
    if tasks < 2 or task <= tasks or not shared:
        raise ValueError(f"expected a task after {tasks} of two or more, got {task}")
    once, twice = shared.get(1, 0), shared.get(2, 0)
    if not once:
        return 1.0
    rate = (tasks - 1) * once / ((tasks - 1) * once + 2 * twice)
    return 1 - once / sum(m * count for m, count in shared.items()) * rate ** (task - tasks)


def find_first_task(share: float, shared: Mapping[int, int], tasks: int) -> int | None:
    """Return the number, from 1, of the first task that finds a share of its region owned.

    The number is an expectation over orders of the tasks.

    Args:
        share: In [0, 1).
        shared: The counts of `count_shared`.
        tasks: Number of tasks, at least 2.

    Returns:
        A number of a task; None if none within a hundred times the tasks there are.

    Examples:
        >>> find_first_task(0.5, {1: 60, 2: 20}, 3)
        4
    """
    if not 0 <= share < 1:
        raise ValueError(f"share must be in [0, 1), got {share}")
    for place, owned_before in enumerate(average_owned_before(shared, tasks)):
        if owned_before >= share:
            return place + 1
    later = range(tasks + 1, _FARTHEST * tasks)
    # The share only grows.
    at = bisect_left(later, share, key=lambda n: predict_owned_before(shared, tasks, task=n))
    return later[at] if at < len(later) else None


def find_drop_threshold(shares: Sequence[float], dropped: Sequence[bool]) -> float | None:
    """Return the share above which tasks drop, as far as these tasks tell.

    It is the cut, in the middle between two shares, that puts the fewest tasks on the wrong side;
    the lowest, where several do.

    Args:
        shares: Share of each task's region that others own.
        dropped: Whether its score dropped.

    Returns:
        A share; None if no cut tells more than that all drop, or that none does.

    Examples:
        >>> find_drop_threshold([0.1, 0.2, 0.6, 0.7], [False, False, True, True])
        0.4
    """
    rows = sorted(zip(shares, dropped, strict=True))
    trivial = min(sum(dropped), len(dropped) - sum(dropped))
    best: tuple[int, float | None] = (trivial, None)
    for place in range(1, len(rows)):
        below, above = rows[place - 1][0], rows[place][0]
        if below == above:
            continue
        wrong = sum(drop for _, drop in rows[:place]) + sum(not drop for _, drop in rows[place:])
        if wrong < best[0]:
            best = wrong, (below + above) / 2
    return best[1]
