"""Rankings: coordinates in the order in which a localizer would take them.

One ranking yields nested regions for all densities, and for any set of coordinates that are
still free.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cl_graft.errors import NotFinite
from cl_graft.graft import gather
from cl_graft.region import Layout, Parameters, Region, top_k

__all__ = ["Ranking", "rank", "rank_inside"]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best coordinates of a task, best first.

    Attributes:
        layout: The graftable parameters.
        order: Coordinate numbers, int64, best first; a ranking may stop before the last one.
    """

    layout: Layout
    order: Tensor

    def top(self, k: int, *, without: Region | None = None) -> Region:
        """Return exactly the first `k` coordinates, passing over those in `without`.

        Raises:
            ValueError: If the ranking does not hold that many.
        """
        order = self.order
        if without is not None and len(without):
            taken = torch.zeros(self.layout.total, dtype=torch.bool)
            taken[without.index] = True
            order = order[~taken[order]]
        if not 1 <= k <= order.numel():
            raise ValueError(f"k must be in [1, {order.numel()}], got {k}")
        return Region.of(self.layout, order[:k])


def rank(scores: Parameters, *, depth: int) -> Ranking:
    """Order the `depth` highest-scoring coordinates; ties go to the earlier coordinate.

    Raises:
        ValueError: If `depth` is not in [1, number of coordinates], or a score is NaN.
    """
    region = top_k(scores, depth)
    return rank_inside(region, gather(scores, region).values, depth=depth)


def rank_inside(region: Region, scores: Tensor, *, depth: int) -> Ranking:
    """Order the `depth` highest-scoring coordinates of a region; ties go to the earlier one.

    Args:
        region: The coordinates that have scores; all others are left out.
        scores: One score a coordinate, of shape (size of the region,).
        depth: How many to rank.

    Raises:
        ValueError: If `depth` is not in [1, size of the region], or a score is NaN or infinitely
            high (`NotFinite`).
    """
    if not 1 <= depth <= len(region):
        raise ValueError(f"depth must be in [1, {len(region)}], got {depth}")
    if bool(scores.isnan().any()):
        raise NotFinite(f"scores hold {int(scores.isnan().sum())} NaN: they cannot be ranked")
    if bool((scores == torch.inf).any()):
        raise NotFinite("scores hold infinities: they cannot be ranked")
    by_score = scores.cpu().sort(descending=True, stable=True).indices
    return Ranking(region.layout, region.index[by_score[:depth]])
