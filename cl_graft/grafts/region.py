"""Regions: sets of coordinates of a model's graftable parameters.

A region is the mask γ of Panigrahi et al., 2023 (https://arxiv.org/abs/2302.06600), written as the
list of its ones. Coordinates are numbered through all parameters of a `Layout`, parameter after
parameter, each in row-major order. A region holds their sorted numbers, so its memory grows with
its own size and not with the model's, and set algebra reads as in the paper:
``free = region - owned``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]
"""Tensors by parameter name, in a fixed order."""


@dataclass(frozen=True)
class Layout:
    """The graftable parameters of a model: their names, shapes and order.

    Attributes:
        names: Parameter names in the order in which coordinates are numbered.
        shapes: The shape of each parameter.

    Examples:
        >>> layout = Layout.of({"weight": torch.zeros(2, 3), "bias": torch.zeros(2)})
        >>> layout.names, layout.starts, layout.total
        (('weight', 'bias'), (0, 6, 8), 8)
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __repr__(self) -> str:
        return f"Layout({len(self.names):,} parameters, {self.total:,} coordinates)"

    @classmethod
    def of(cls, parameters: Parameters) -> Layout:
        """Read the layout off a mapping of tensors; a model that is only heads has an empty one."""
        names, shapes = tuple(parameters), tuple(tuple(p.shape) for p in parameters.values())
        return _LAYOUTS.setdefault((names, shapes), cls(names, shapes))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of coordinates of each parameter."""
        return tuple(torch.Size(shape).numel() for shape in self.shapes)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Number of the first coordinate of each parameter, and the total at the end."""
        starts = [0]
        for size in self.sizes:
            starts.append(starts[-1] + size)
        return tuple(starts)

    @property
    def total(self) -> int:
        """Number of coordinates of all parameters together."""
        return self.starts[-1]

    def find_parameters(self, coordinates: Tensor) -> Tensor:
        """Return which parameter each coordinate lies in, by its place in `names`; int64."""
        return torch.searchsorted(torch.tensor(self.starts[1:]), coordinates, right=True)

    def number_in(self, whole: Layout, coordinates: Tensor) -> Tensor:
        """Return the numbers of coordinates in a layout that holds all parameters of this one."""
        if self == whole:
            return coordinates
        starts = dict(zip(whole.names, whole.starts, strict=False))
        moved = [starts[name] - start for name, start in zip(self.names, self.starts, strict=False)]
        return coordinates + torch.tensor(moved)[self.find_parameters(coordinates)]


_LAYOUTS: WeakValueDictionary[tuple[object, object], Layout] = WeakValueDictionary()
"""Layouts in use: equal ones are one object, so that regions compare them cheaply."""


@dataclass(frozen=True, eq=False)
class Region:
    """A set of coordinates.

    Attributes:
        layout: The parameters that coordinates are numbered through.
        index: Sorted, unique coordinate numbers; int64 on the CPU, shape (size,).

    Examples:
        >>> layout = Layout(("weight", "bias"), ((2, 3), (2,)))
        >>> first, second = Region.of(layout, [5, 0, 6]), Region.of(layout, [6, 7])
        >>> (first - second).index.tolist()
        [0, 5]
        >>> len(first | second), first.density, first.overlap(second)
        (4, 0.375, 0.5)
        >>> second.masks()["bias"]
        tensor([True, True])
    """

    layout: Layout
    index: Tensor

    def __post_init__(self) -> None:
        index, total = self.index, self.layout.total
        if index.dtype != torch.int64 or index.dim() != 1 or index.device.type != "cpu":
            raise TypeError(
                f"index must be a 1-d int64 tensor on the CPU, got {index.dim()}-d {index.dtype} "
                f"on {index.device}"
            )
        numbers = index.numpy()
        if (numbers[1:] <= numbers[:-1]).any():
            raise ValueError("index must be sorted and without repeats; use Region.of")
        if len(numbers) and (numbers[0] < 0 or numbers[-1] >= total):
            raise ValueError(
                f"coordinates must be in [0, {total}), got {numbers[0]} to {numbers[-1]}"
            )

    def __repr__(self) -> str:
        return (
            f"Region({len(self):,} of {self.layout.total:,} coordinates, "
            f"density {self.density:.3g})"
        )

    @classmethod
    def of(cls, layout: Layout, coordinates: Iterable[int] | Tensor) -> Region:
        """Make a region from coordinate numbers, not a mask, in any order, repeats allowed."""
        if not isinstance(coordinates, Tensor):
            numbers = list(coordinates)
            coordinates = torch.tensor(numbers) if numbers else torch.empty(0, dtype=torch.int64)
        kind = coordinates.dtype
        if kind == torch.bool:
            raise TypeError(
                "coordinates are numbers, got a boolean mask; pass mask.flatten().nonzero()[:, 0], "
                "or the masks of all parameters to Region.from_masks"
            )
        if kind.is_floating_point or kind.is_complex or coordinates.dim() != 1:
            raise TypeError(
                f"coordinates must be a 1-d sequence of whole numbers, got {coordinates.dim()}-d "
                f"{kind}"
            )
        return cls(layout, torch.unique(coordinates.to("cpu", torch.int64)))

    @classmethod
    def empty(cls, layout: Layout) -> Region:
        """Make the region without coordinates."""
        return cls(layout, torch.empty(0, dtype=torch.int64))

    @classmethod
    def full(cls, layout: Layout) -> Region:
        """Make the region of all coordinates."""
        return cls(layout, torch.arange(layout.total))

    @classmethod
    def from_masks(cls, masks: Parameters) -> Region:
        """Make a region from dense boolean masks; True means "in the region"."""
        for name, mask in masks.items():
            if mask.dtype != torch.bool:
                raise TypeError(f"masks must be bool, got {mask.dtype} for {name}")
        flat = torch.cat([mask.reshape(-1).cpu() for mask in masks.values()])
        return cls(Layout.of(masks), flat.nonzero().squeeze(1))

    def masks(self) -> dict[str, Tensor]:
        """Return the dense boolean masks, one a parameter; True means "in the region"."""
        flat = torch.zeros(self.layout.total, dtype=torch.bool)
        flat[self.index] = True
        parts = flat.split(list(self.layout.sizes))
        shaped = zip(self.layout.names, self.layout.shapes, parts, strict=True)
        return {name: part.reshape(shape) for name, shape, part in shaped}

    def by_parameter(self) -> Iterator[tuple[str, Tensor, slice]]:
        """Yield the name, coordinates and place of the region in each parameter that it touches.

        Coordinates are those inside the parameter (flat, row-major, int64), the place is their
        slice of `index`.
        """
        starts = torch.tensor(self.layout.starts)
        cuts = torch.searchsorted(self.index, starts).tolist()
        pieces = zip(self.layout.names, self.layout.starts, cuts[:-1], cuts[1:], strict=False)
        for name, start, low, high in pieces:
            if high > low:
                cut = slice(low, high)
                yield name, self.index[cut] - start, cut

    def within(self, layout: Layout) -> Region:
        """Return the region in a layout that holds all parameters of its own in their order."""
        return Region(layout, self.layout.number_in(layout, self.index))

    @property
    def density(self) -> float:
        """Selected over all coordinates, in [0, 1]; 0 where there are none."""
        return len(self) / self.layout.total if len(self) else 0.0

    def __len__(self) -> int:
        return self.index.numel()

    def __or__(self, other: Region) -> Region:
        return self._with(other, _merge_sorted([self.index, other.index]))

    def __and__(self, other: Region) -> Region:
        return self._with(other, self.index[_contains(other.index, self.index)])

    def __sub__(self, other: Region) -> Region:
        return self._with(other, self.index[~_contains(other.index, self.index)])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Region):
            return NotImplemented
        return self.layout == other.layout and torch.equal(self.index, other.index)

    __hash__ = None  # type: ignore[assignment]

    def __le__(self, other: Region) -> bool:
        """Tell whether every coordinate lies in `other` too."""
        self._check_layout(other)
        if self.index is other.index or not len(self):
            return True
        # Both together, as two sorted runs, are merged faster than one is searched in the other.
        both = np.concatenate([self.index.numpy(), other.index.numpy()])
        both.sort(kind="stable")
        return np.count_nonzero(both[1:] == both[:-1]) == len(self)

    def find(self, part: Region) -> Tensor:
        """Return where the coordinates of a subset stand in `index`; int64."""
        self._check_layout(part)
        places = torch.searchsorted(self.index, part.index)
        if not part <= self:
            raise ValueError(f"{len(part - self)} of {len(part)} coordinates lie outside")
        return places

    def jaccard(self, other: Region) -> float:
        """Return |A ∩ B| / |A ∪ B| in [0, 1]; 1 for two empty regions."""
        both, either = len(self & other), len(self | other)
        return both / either if either else 1.0

    def overlap(self, other: Region) -> float | None:
        """Return |γ_i ∩ γ_j| / |γ_j|, the paper's Fig. 8a, i = self; None if γ_j is empty."""
        return len(self & other) / len(other) if len(other) else None

    def _with(self, other: Region, index: Tensor) -> Region:
        self._check_layout(other)
        return Region(self.layout, index)

    def _check_layout(self, other: Region) -> None:
        if self.layout != other.layout:
            raise ValueError(
                f"regions of different models: {len(self.layout.names)} parameters with "
                f"{self.layout.total} coordinates against {len(other.layout.names)} with "
                f"{other.layout.total}"
            )


def union(regions: Iterable[Region], *, layout: Layout) -> Region:
    """Return the union of any number of regions of one layout; empty for none."""
    empty = Region.empty(layout)
    parts = [empty.index]
    for region in regions:
        empty._check_layout(region)
        parts.append(region.index)
    if 4 * sum(map(len, parts)) > layout.total:
        held = np.zeros(layout.total, dtype=bool)  # less memory and time than sorting all of them
        for part in parts:
            held[part.numpy()] = True
        return Region(layout, torch.from_numpy(np.flatnonzero(held)))
    return Region(layout, _merge_sorted(parts))


def overlap_matrix(regions: list[Region]) -> list[list[float | None]]:
    """Return the paper's overlap for all pairs: row i, column j is |γ_i ∩ γ_j| / |γ_j|."""
    if not regions:
        return []
    sizes = np.array([len(region) for region in regions])
    numbers, places = np.unique(
        np.concatenate([region.index.numpy() for region in regions]), return_inverse=True
    )
    ends = np.cumsum(sizes)
    matrix: list[list[float | None]] = []
    for size, end in zip(sizes, ends, strict=True):
        held = np.zeros(len(numbers), dtype=bool)
        held[places[end - size : end]] = True
        counted = np.concatenate([[0], np.cumsum(held[places])])
        shared = counted[ends] - counted[ends - sizes]
        matrix.append([int(n) / int(k) if k else None for n, k in zip(shared, sizes, strict=True)])
    return matrix


def _contains(sorted_index: Tensor, wanted: Tensor) -> Tensor:
    """Tell for each element of `wanted`, sorted, whether `sorted_index` holds it."""
    if not sorted_index.numel():
        return torch.zeros(wanted.numel(), dtype=torch.bool)
    held, asked = sorted_index.numpy(), wanted.numpy()  # torch's search takes 4 times as long
    places = np.searchsorted(held, asked)
    places[places == len(held)] = 0
    return torch.from_numpy(held[places] == asked)


def _merge_sorted(parts: list[Tensor]) -> Tensor:
    """Return the sorted union of sorted numbers; numpy's sort is 4 times as fast as torch's."""
    full = [part.numpy() for part in parts if part.numel()]
    if len(full) < 2:
        return torch.from_numpy(full[0]) if full else parts[0]
    if len(full) == 2:
        numbers = np.sort(np.concatenate(full), kind="stable")  # which merges sorted runs
    else:
        # Half the memory to sort, where the numbers allow it.
        dtype = np.int32 if max(int(part[-1]) for part in full) < 2**31 else np.int64
        numbers = np.sort(np.concatenate(full, dtype=dtype, casting="same_kind"))
    first = np.ones(len(numbers), dtype=bool)
    np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
    unique = numbers if first.all() else numbers[first]
    return torch.from_numpy(unique.astype(np.int64, copy=False))


_BLOCK = re.compile(r"(?:^|\.)(\d+)\.")


@dataclass(frozen=True, eq=False)
class Anatomy:
    """Counts of a region's coordinates by layer and kind, as in Panigrahi et al.'s Figs. 9 and 10.

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
    matches = {name: _BLOCK.search(name) for name in region.layout.names}
    places = [(int(m[1]), n[m.end() :]) if m else (-1, n) for n, m in matches.items()]
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


def _shares(counts: Tensor) -> Tensor:
    return counts.double() / counts.sum()
