"""Task vectors: by how much each graft moves the base, side by side on the union of regions.

A rule of merging sees the vectors only and returns one. Where a task's region does not reach, its
vector is 0: the graft leaves the base's value there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cl_graft.grafts.graft import Graft, gather
from cl_graft.grafts.region import Parameters, union


@dataclass(frozen=True, eq=False)
class TaskVectors:
    """The grafts of T tasks as differences from the base, on the n coordinates of all of them.

    Attributes:
        base: The base's values there.
        deltas: Values of the grafts minus the base's, fp64 of shape (T, n); 0 outside a region.
        held: True where the region of a task holds a coordinate; bool, shape (T, n).

    Examples:
        >>> from cl_graft.grafts.region import Layout, Region
        >>> base = {"weight": torch.zeros(4)}
        >>> layout = Layout.of(base)
        >>> first = Graft(Region.of(layout, [0, 1]), torch.tensor([1.0, 2.0]))
        >>> second = Graft(Region.of(layout, [1]), torch.tensor([-4.0]))
        >>> vectors = TaskVectors.of([first, second], base)
        >>> vectors.deltas
        tensor([[ 1.,  2.],
                [ 0., -4.]], dtype=torch.float64)
        >>> vectors.moved_by(vectors.deltas.mean(0)).values
        tensor([ 0.5000, -1.0000])
    """

    base: Graft
    deltas: Tensor
    held: Tensor

    @classmethod
    def of(cls, grafts: Sequence[Graft], base: Parameters) -> TaskVectors:
        """Lay grafts side by side.

        Args:
            grafts: Grafts of one base model.
            base: Parameters of that model, at their base values.

        Raises:
            ValueError: If there is no graft, or they belong to different models.
        """
        if not grafts:
            raise ValueError("merging needs at least one graft, got none")
        region = union((graft.region for graft in grafts), layout=grafts[0].region.layout)
        values = gather(base, region)
        deltas = torch.zeros(len(grafts), len(region), dtype=torch.float64)
        held = torch.zeros(len(grafts), len(region), dtype=torch.bool)
        for row, graft in enumerate(grafts):
            places = region.find(graft.region)
            deltas[row, places] = graft.values.double() - values.values[places].double()
            held[row, places] = True
        return cls(values, deltas, held)

    def moved_by(self, delta: Tensor) -> Graft:
        """Return the graft that moves the base by a merged vector, fp64 of shape (n,).

        Differences of fp32 values are exact in fp64 unless they lie very far apart, so the vector
        of a single graft gives its very values.
        """
        values = self.base.values.double() + delta
        return Graft(self.base.region, values.to(self.base.values.dtype))
