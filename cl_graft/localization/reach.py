"""The reach of a region: the parameters that layers, localizer and modules leave, with shares."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import ceil

import torch
from torch import nn

from cl_graft.grafts.blocks import select_upper
from cl_graft.grafts.region import Layout, Region, union
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.modules import split_by_modules
from cl_graft.localization.ranking import Ranking
from cl_graft.localization.registry import find_localizer


@dataclass(frozen=True, eq=False)
class Reach:
    """The parameters that a region may reach, in parts that each give a share of it.

    Attributes:
        layout: Layout of all graftable parameters.
        parts: The parameters of each part, by name, and its share; shares sum to 1.
        unit: Number of coordinates that are chosen together.
    """

    layout: Layout
    parts: list[tuple[dict[str, nn.Parameter], float]]
    unit: int = 1

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters of all parts by name, in the order of the layout."""
        merged = {name: value for part, _ in self.parts for name, value in part.items()}
        return {name: merged[name] for name in self.layout.names if name in merged}

    @property
    def total(self) -> int:
        """Number of coordinates of all parts."""
        return Layout.of(self.parameters).total

    def divide(self, k: int, *, owned: Region) -> list[int]:
        """Return how many coordinates of a budget each part gives, at most those not owned.

        Whole units are given, at least one where there is a budget.
        """
        ends = [0, *(round(k * share) for share in accumulate(share for _, share in self.parts))]
        counts = []
        for (start, end), (part, _) in zip(pairwise(ends), self.parts, strict=True):
            free = Layout.of(part).total - _count(owned, part)
            most = min(end - start, free)
            counts.append(min(max(most - most % self.unit, self.unit), free) if most else 0)
        return counts

    def count_regions(self, k: int, *, owned: Region) -> int:
        """Return how many regions of a budget fit beside each other and what is owned."""
        free = [Layout.of(part).total - _count(owned, part) for part, _ in self.parts]
        counts = self.divide(k, owned=Region.empty(self.layout))
        return min(left // count for left, count in zip(free, counts, strict=True) if count)

    def count_beside(self, counts: list[int], *, owned: Region) -> int:
        """Return how much longer than its regions a ranking is that has enough beside `owned`."""
        parts = zip(counts, self.parts, strict=True)
        needed = [ceil((count + _count(owned, part)) / share) for count, (part, share) in parts]
        return max(needed) - sum(counts)

    def cut(self, ranking: Ranking, k: int, *, without: Region) -> Region:
        """Cut the region of a budget from a ranking, passing over the coordinates in `without`."""
        order, regions = ranking.without(without).order, []
        places = self.layout.find_parameters(order)
        for (part, _), count in zip(self.parts, self.divide(k, owned=without), strict=True):
            chosen = torch.tensor([name in part for name in self.layout.names])
            if count:
                regions.append(Ranking(self.layout, order[chosen[places]]).top(count))
        return union(regions, layout=self.layout)


def _count(owned: Region, part: Mapping[str, nn.Parameter]) -> int:
    """Return how many coordinates of a part are owned."""
    return sum(len(inside) for name, inside, _ in owned.by_parameter() if name in part)


def find_reach(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], settings: GraftingSettings
) -> Reach:
    """Return what a region may reach by localizer, layers and modules, without a look at values.

    Raises:
        InputError: If the settings do not fit the model, or leave nothing.
    """
    row = find_localizer(settings.localizer)
    chosen = select_upper(model, parameters, settings.layers)
    if row.allowed:
        chosen = row.allowed(model, chosen)
    parts = split_by_modules(model, chosen, settings.modules)
    reach = Reach(Layout.of(parameters), parts)
    return replace(reach, unit=row.unit(model, reach.parameters)) if row.unit else reach


def warn_if_full(
    reach: Reach, settings: GraftingSettings, *, tasks: int, owned: Region | None = None
) -> None:
    """Warn where whole regions of tasks that lie in one model need not fit beside each other."""
    owned = Region.empty(reach.layout) if owned is None else owned
    fit = reach.count_regions(settings.coordinates(reach.layout.total), owned=owned)
    if fit < tasks and settings.mode == "prefix" and settings.avoid_owned:
        logger.warning(
            "warning: of %d tasks in one model %d get a whole region of density %g, and others "
            "maybe less or nothing: localizer, layers and modules leave %d weights, of which "
            "earlier tasks own %d. Lower the density (0.0001 to 0.01 is usual)",
            *(tasks, fit, settings.density, reach.total, len(owned)),
        )


logger = logging.getLogger(__name__)
