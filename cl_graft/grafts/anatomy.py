"""Counts of a region's coordinates by layer and by kind of parameter.

As in Figs. 9 and 10 of Panigrahi et al., 2023 (https://arxiv.org/abs/2302.06600).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from cl_graft.grafts.region import Region

_BLOCK = re.compile(r"(?:^|\.)(\d+)\.")


@dataclass(frozen=True, eq=False)
class Anatomy:
    """Counts of a region's coordinates by layer and by kind of parameter.

    Attributes:
        layers: Numbers of the blocks, ascending; −1 stands for parameters outside of any.
        kinds: Parameters inside a block, such as "attention.self.value.weight", in their order.
        counts: Coordinates of the region, int64, of shape (layers, kinds).
        sizes: All coordinates, of the same shape.
    """

    layers: tuple[int, ...]
    kinds: tuple[str, ...]
    counts: Tensor
    sizes: Tensor

    @property
    def by_layer(self) -> Tensor:
        """Share of the region in each layer, float64, of shape (layers,); sums to 1."""
        return _shares(self.counts.sum(1))

    @property
    def by_kind(self) -> Tensor:
        """Share of the region in each kind of parameter, float64, of shape (kinds,)."""
        return _shares(self.counts.sum(0))

    @property
    def density(self) -> Tensor:
        """Selected over all coordinates of each place; NaN where a layer has no such kind."""
        return self.counts.double() / self.sizes


def anatomy(region: Region) -> Anatomy:
    """Count the coordinates of a region by layer and by kind of parameter.

    The first number in a parameter's name is its layer, what follows it its kind.
    """
    places = [_place(name) for name in region.layout.names]
    layers = tuple(sorted({layer for layer, _ in places}))
    kinds = tuple(dict.fromkeys(kind for _, kind in places))
    counts = torch.zeros(len(layers), len(kinds), dtype=torch.int64)
    sizes = torch.zeros_like(counts)
    inside = {name: len(numbers) for name, numbers, _ in region.by_parameter()}
    for (layer, kind), name, size in zip(
        places, region.layout.names, region.layout.sizes, strict=True
    ):
        at = layers.index(layer), kinds.index(kind)
        counts[at] += inside.get(name, 0)
        sizes[at] += size
    return Anatomy(layers, kinds, counts, sizes)


def _place(name: str) -> tuple[int, str]:
    found = _BLOCK.search(name)
    return (int(found.group(1)), name[found.end() :]) if found else (-1, name)


def _shares(counts: Tensor) -> Tensor:
    return counts.double() / counts.sum()
