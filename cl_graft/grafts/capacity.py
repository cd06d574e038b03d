"""Estimates of how many coordinates a task loses to others: now, in other orders, and later on.

Where a coordinate has one owner, a task loses of its region γ what earlier tasks claimed. How often
coordinates are claimed says how much a later task will lose: if tasks are alike, the share of a
next region that was never claimed before is about that of claims which no other task shares (Good
and Turing's estimate), and it shrinks at a rate that the coordinates claimed twice tell (Chao et
al., 2014, https://doi.org/10.1890/13-0133.1, for incidences).
"""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cl_graft.grafts.region import Region
from cl_graft.runtime.seeding import derive

__all__ = [
    "OwnedInOrders",
    "claim_counts",
    "drop_threshold",
    "expected_lost",
    "owned_in_orders",
    "predicted_lost",
    "task_that_loses",
]

_EXACT = 7
"""Tasks up to which all orders (5,040) are looked at."""

_FAR = 100
"""Times the tasks there are: no prediction goes further."""


@dataclass(frozen=True)
class OwnedInOrders:
    """What tasks would own if they had come in other orders; shares of their regions in [0, 1].

    Attributes:
        orders: How many orders were looked at.
        exact: Whether these are all there are.
        seed: What drew them, where they are not.
        least: By task, when it comes last. Exact.
        mean: By task, over all orders there are. Exact: a coordinate that m tasks claim is a
            task's in one of m orders.
        spread: By task, the standard deviation over the orders looked at.
        worst_off: Share of the task that owns least, in the order given.
        worst_off_best: The same in the best of the orders looked at.
        worst_off_worst: The same in the worst of them.
        best: That best order, positions of tasks.
    """

    orders: int
    exact: bool
    seed: int | None
    least: tuple[float, ...]
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    worst_off: float
    worst_off_best: float
    worst_off_worst: float
    best: tuple[int, ...]


def owned_in_orders(
    regions: Sequence[Region], *, samples: int = 200, seed: int = 0
) -> OwnedInOrders:
    """Say what each task would own of its region, had the same regions come in other orders.

    Args:
        regions: The claimed regions of one bank, none of them empty, in their order.
        samples: How many orders to draw where there are more than 5,040.
        seed: Draws them.

    Raises:
        ValueError: If there is no region, or an empty one.
    """
    sizes = np.array([len(region) for region in regions], dtype=np.float64)
    if not len(sizes) or not sizes.all():
        raise ValueError("expected regions that are not empty, and one at least")
    claims = _Claims.of(regions)
    alone = claims.weights[claims.sharing == 1]
    of_alone = claims.tasks[claims.starts[claims.sharing == 1]]
    least = np.bincount(of_alone, weights=alone, minlength=len(sizes))
    fair = np.repeat(claims.weights / claims.sharing, claims.sharing)
    mean = np.bincount(claims.tasks, weights=fair, minlength=len(sizes))
    exact = len(sizes) <= _EXACT
    here = claims.owned(range(len(sizes))) / sizes
    shares: list[np.ndarray] = []
    best: tuple[float, tuple[int, ...]] = (-1.0, ())
    for order in _orders(len(sizes), exact=exact, samples=samples, seed=seed):
        owned = claims.owned(order) / sizes
        shares.append(owned)
        best = max(best, (float(owned.min()), tuple(order)), key=lambda found: found[0])
    looked = np.stack(shares)
    return OwnedInOrders(
        orders=len(looked),
        exact=exact,
        seed=None if exact else seed,
        least=tuple((least / sizes).tolist()),
        mean=tuple((mean / sizes).tolist()),
        spread=tuple(looked.std(axis=0).tolist()),
        worst_off=float(here.min()),
        worst_off_best=best[0],
        worst_off_worst=float(looked.min()),
        best=best[1],
    )


def claim_counts(regions: Sequence[Region]) -> dict[int, int]:
    """Return how many coordinates exactly m regions claim, by m from 1."""
    if not any(len(region) for region in regions):
        return {}
    claims = _Claims.of(regions)
    counts = np.bincount(claims.sharing, weights=claims.weights)
    return {m: int(count) for m, count in enumerate(counts) if count}


def expected_lost(counts: Mapping[int, int], tasks: int) -> list[float]:
    """Return the share that the first, second… of these tasks loses, on average over all orders.

    Exact: of m regions that claim a coordinate, one at place n owns it if the others come later,
    which has the chance C(T - m, n - 1) / C(T - 1, n - 1).

    Args:
        counts: What `claim_counts` returned.
        tasks: T, how many tasks there are.
    """
    claims = sum(m * count for m, count in counts.items())
    lost = []
    for before in range(tasks if claims else 0):
        chances = {m: math.comb(tasks - m, before) / math.comb(tasks - 1, before) for m in counts}
        lost.append(1 - sum(m * count * chances[m] for m, count in counts.items()) / claims)
    return lost


def predicted_lost(counts: Mapping[int, int], tasks: int, *, task: int) -> float:
    """Return the share that a later task is expected to lose: 1 - (Q1 / U) · Aᵗ, t = task - T.

    Q1 and Q2 coordinates are claimed once and twice, U = Σ m·Qm, and
    A = (T - 1)·Q1 / ((T - 1)·Q1 + 2·Q2). It is said to hold up to about twice the tasks there are.

    Args:
        counts: What `claim_counts` returned, not empty.
        tasks: T, how many tasks there are, at least 2.
        task: Number of the task, from T + 1.
    """
    if tasks < 2 or task <= tasks or not counts:
        raise ValueError(f"expected a task after {tasks} of two or more, got {task}")
    once, twice = counts.get(1, 0), counts.get(2, 0)
    if not once:
        return 1.0
    rate = (tasks - 1) * once / ((tasks - 1) * once + 2 * twice)
    return 1 - once / sum(m * count for m, count in counts.items()) * rate ** (task - tasks)


def task_that_loses(share: float, counts: Mapping[int, int], tasks: int) -> int | None:
    """Return the number, from 1, of the first task that is expected to lose a share.

    Args:
        share: In [0, 1).
        counts: What `claim_counts` returned.
        tasks: How many tasks there are, at least 2.

    Returns:
        A number of a task; None if none within a hundred times the tasks there are.
    """
    if not 0 <= share < 1:
        raise ValueError(f"share must be in [0, 1), got {share}")
    for place, lost in enumerate(expected_lost(counts, tasks)):
        if lost >= share:
            return place + 1
    later = range(tasks + 1, _FAR * tasks)
    # It only grows.
    at = bisect_left(later, share, key=lambda n: predicted_lost(counts, tasks, task=n))
    return later[at] if at < len(later) else None


def drop_threshold(lost: Sequence[float], dropped: Sequence[bool]) -> float | None:
    """Return the lost share from which on tasks drop, as far as they tell.

    It is the cut, in the middle between two shares, that puts the fewest tasks on the wrong side;
    the lowest, where several do.

    Returns:
        A share; None if no cut tells more than that all drop, or that none does.
    """
    rows = sorted(zip(lost, dropped, strict=True))
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


@dataclass(frozen=True, eq=False)
class _Claims:
    """Who claims what: coordinates that the same tasks claim are one pattern.

    Attributes:
        weights: Coordinates of each pattern.
        sharing: Tasks of each pattern.
        tasks: Those tasks, pattern after pattern.
        starts: Where each pattern begins in `tasks`.
    """

    weights: np.ndarray
    sharing: np.ndarray
    tasks: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, regions: Sequence[Region]) -> _Claims:
        parts = [region.index.numpy() for region in regions]
        places, at = np.unique(np.concatenate(parts), return_inverse=True)
        member = np.zeros((len(places), len(regions)), dtype=bool)
        member[at.reshape(-1), np.repeat(np.arange(len(parts)), [len(part) for part in parts])] = 1
        packed = np.packbits(member, axis=1)
        _, first, weights = np.unique(packed, axis=0, return_index=True, return_counts=True)
        patterns = member[first]
        sharing = patterns.sum(axis=1)
        starts = np.concatenate([[0], np.cumsum(sharing)[:-1]]).astype(np.int64)
        return cls(weights, sharing, patterns.nonzero()[1], starts)

    def owned(self, order: Sequence[int]) -> np.ndarray:
        """Return the coordinates that each task owns when they come in an order."""
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[list(order)] = np.arange(len(order))
        first = np.minimum.reduceat(ranks[self.tasks], self.starts)
        by_rank = np.bincount(first, weights=self.weights, minlength=len(order))
        return by_rank[ranks]


def _orders(count: int, *, exact: bool, samples: int, seed: int) -> Iterator[Sequence[int]]:
    if exact:
        yield from itertools.permutations(range(count))
        return
    draws = random.Random(derive(seed, "orders"))
    for _ in range(samples):
        yield draws.sample(range(count), count)
