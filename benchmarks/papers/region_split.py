"""Splits of a region: which coordinates of a graft serve which rows.

Whether a graft can be taken apart into sub-skills is an open question of Panigrahi et al., 2023
(https://arxiv.org/abs/2302.06600, Sec. 5). Here a coordinate goes to the group of rows whose loss
its move lowers most. A part is a region like any other: `graft.on(part)` is what it holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cl_graft.errors import NotFinite
from cl_graft.grafts.graft import Graft, extract, grafted
from cl_graft.grafts.model_state import preserve_modes, train_only
from cl_graft.grafts.region import Region
from cl_graft.runtime.seeding import permutation
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.region_parameters import RegionParameters

_ROWS_AT_ONCE = 32
_MIDPOINTS = (0.125, 0.375, 0.625, 0.875)


def group_gains(
    task: LearnableTask,
    graft: Graft,
    groups: Sequence[Sequence[int]],
    *,
    points: Sequence[float] = _MIDPOINTS,
) -> Tensor:
    """Estimate how much of each group's mean loss the move of each coordinate takes away.

    The gain of coordinate i for group g is −d_i · mean over points α of ∂L_g/∂θ_i(base + α·d), with
    d = graft − base and L_g the mean loss of the group's rows: integrated gradients (Sundararajan
    et al., 2017, https://arxiv.org/abs/1703.01365, Sec. 3) on the line from base to graft. At the
    four midpoints the gains of a group add up to what the graft takes off its loss, nearly. At the
    base alone (point 0) they are of first order, which the loss of a graft is far from: there their
    sum can have the wrong sign.

    The model is put back bit for bit.
    """
    start = extract(task.model, graft.region).values.float()
    move = graft.values.float() - start
    total = torch.zeros(len(groups), len(graft))
    with preserve_modes(task.model), train_only(task.model):
        task.model.eval()
        for point in points:
            moved = torch.lerp(start, graft.values.float(), point).to(graft.values.dtype)
            with grafted(task.model, Graft(graft.region, moved)):
                for number, rows in enumerate(groups):
                    total[number] -= _gradient(task, graft.region, rows) * move
    if not bool(total.isfinite().all()):
        raise NotFinite("a gain is NaN or infinite")
    return total / len(points)


def split_by_gain(region: Region, gains: Tensor) -> tuple[Region, ...]:
    """Deal the coordinates of a region out to groups, each to the one with the largest gain.

    Gains are counted as shares of the sum of their group's absolute gains. Otherwise the group
    with the steepest loss would get nearly everything.

    Parts differ by one coordinate at most, so that a part is never better for its size alone. The
    coordinates with the largest lead of one group over the next choose first; a group that is full
    takes no more, and those that are left choose among the others.

    Examples:
        >>> from cl_graft.grafts.region import Layout
        >>> region = Region.of(Layout(("weight",), ((5,),)), [0, 1, 3, 4])
        >>> gains = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 1.0, 1.0, 7.0]])
        >>> [part.index.tolist() for part in split_by_gain(region, gains)]
        [[0, 1], [3, 4]]
    """
    shares = gains.double()
    shares = shares / shares.abs().sum(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    whole, parts = len(region), len(gains)
    owner = _deal(shares, [whole // parts + (place < whole % parts) for place in range(parts)])
    return tuple(Region(region.layout, region.index[owner == g]) for g in range(parts))


def split_at_random(region: Region, sizes: Sequence[int], *, seed: int) -> tuple[Region, ...]:
    """Split a region into random parts of given sizes, the control of a split by gain."""
    order = permutation(len(region), seed, "region split")
    return tuple(Region.of(region.layout, region.index[part]) for part in order.split(list(sizes)))


def _gradient(task: LearnableTask, region: Region, rows: Sequence[int]) -> Tensor:
    """Return the gradient of the mean loss of rows at a region, fp32, on the CPU."""
    with RegionParameters(task.model, region) as live, torch.enable_grad():
        for term in task.losses(rows, micro_batch=_ROWS_AT_ONCE):
            term.backward()
        found = live.vector.grad
        return torch.zeros(len(region)) if found is None else found.detach().float().cpu()


def _deal(shares: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the group of each coordinate, int64, where each group takes as many as its size."""
    owner = torch.full((shares.shape[1],), -1)
    free = torch.tensor(sizes)
    left = torch.arange(shares.shape[1])
    while len(left):
        wanted = shares[:, left].masked_fill((free == 0).unsqueeze(1), -torch.inf)
        best = wanted.topk(2, dim=0)
        order = (best.values[0] - best.values[1]).sort(descending=True, stable=True).indices
        choice = wanted.argmax(0)[order]
        # Each takes its choice, up to the first one whose group is full by then.
        taken = torch.nn.functional.one_hot(choice, len(sizes)).cumsum(0)
        full = (taken > free).any(1).nonzero()
        end = int(full[0]) if len(full) else len(order)
        owner[left[order[:end]]] = choice[:end]
        free -= taken[end - 1] if end else torch.zeros_like(free)
        left = left[order[end:]].sort().values
    return owner
