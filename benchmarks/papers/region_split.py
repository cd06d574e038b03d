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
from cl_graft.grafts.region import Layout, Region
from cl_graft.runtime.seeding import permutation
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.region_parameters import RegionParameters

__all__ = ["group_gains", "split_at_random", "split_by_gain", "split_region"]

_ROWS_AT_ONCE = 32
_MIDPOINTS = (0.125, 0.375, 0.625, 0.875)


def split_region(
    task: LearnableTask,
    graft: Graft,
    groups: Sequence[Sequence[int]],
    *,
    points: Sequence[float] = _MIDPOINTS,
    balanced: bool = True,
) -> tuple[Region, ...]:
    """Split the region of a graft by the gain that its coordinates bring to groups of rows.

    `group_gains` estimates the gains, and `split_by_gain` deals the coordinates out.

    Args:
        task: The task, on a model at the base of the graft, with the head that answers.
        graft: Values of the task on its region.
        groups: Numbers of training rows, one sequence a group.
        points: Places between base and graft at which gradients are taken, see `group_gains`.
        balanced: Whether the parts have equal sizes, see `split_by_gain`.

    Returns:
        One part a group; they are disjoint, and their union is the region.

    Raises:
        ValueError: If the groups do not fit the task's rows, or the graft its parameters.
        NotFinite: If a gain is NaN or infinite.
    """
    gains = group_gains(task, graft, groups, points=points)
    return split_by_gain(graft.region, gains, balanced=balanced)


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

    Args:
        task: The task, on a model at the base of the graft, with the head that answers.
        graft: Values of the task on its region.
        groups: Numbers of training rows, one sequence a group; a row is in one group at most.
        points: Shares α in [0, 1] of the way from base to graft, at least one; each costs a forward
            and a backward pass of all groups' rows.

    Returns:
        Gains in units of the loss, fp32, of shape (groups, size of the region).

    Raises:
        ValueError: If the groups do not fit the task's rows, or the graft its parameters.
        NotFinite: If a gain is NaN or infinite.
    """
    groups = [list(rows) for rows in groups]
    _check_groups(groups, rows=len(task.train))
    _check_graft(task, graft)
    if not points or not all(0 <= point <= 1 for point in points):
        raise ValueError(f"points must be shares in [0, 1], at least one, got {list(points)}")
    base = extract(task.model, graft.region)
    start = base.values.float()
    move = graft.values.float() - start
    total = torch.zeros(len(groups), len(graft))
    with preserve_modes(task.model), train_only(task.model):
        task.model.eval()
        for point in points:
            moved = torch.lerp(start, graft.values.float(), point).to(graft.values.dtype)
            with grafted(task.model, Graft(graft.region, moved)):
                for number, rows in enumerate(groups):
                    total[number] -= _gradient(task, graft.region, rows) * move
    gains = total / len(points)
    if not bool(gains.isfinite().all()):
        raise NotFinite(
            "a gain is NaN or infinite: are the values of the graft and the loss whole?"
        )
    return gains


def split_by_gain(region: Region, gains: Tensor, *, balanced: bool = True) -> tuple[Region, ...]:
    """Deal the coordinates of a region out to groups, each to the one with the largest gain.

    Gains are counted as shares of the sum of their group's absolute gains. Otherwise the group
    with the steepest loss would get nearly everything.

    Balanced parts differ by one coordinate at most, so that a part is never better for its size
    alone. The coordinates with the largest lead of one group over the next choose first; a group
    that is full takes no more, and those that are left choose among the others.

    Args:
        region: The coordinates.
        gains: Gain of each coordinate for each group, of shape (groups, size of the region).
        balanced: Whether the parts have equal sizes. If not, a part may be empty.

    Returns:
        One part a group; they are disjoint, and their union is the region.

    Raises:
        ValueError: If the shape does not fit, or there are fewer than two groups or more than
            coordinates.
        NotFinite: If a gain is NaN or infinite.

    Examples:
        >>> region = Region.of(Layout(("weight",), ((5,),)), [0, 1, 3, 4])
        >>> gains = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 1.0, 1.0, 7.0]])
        >>> [part.index.tolist() for part in split_by_gain(region, gains, balanced=False)]
        [[0, 1, 3], [4]]
        >>> [part.index.tolist() for part in split_by_gain(region, gains)]
        [[0, 1], [3, 4]]
    """
    if gains.ndim != 2 or gains.shape[1] != len(region):
        raise ValueError(
            f"gains must have shape (groups, {len(region)}), got {tuple(gains.shape)}: one a group "
            "and coordinate"
        )
    if not 2 <= len(gains) <= len(region):
        raise ValueError(
            f"a region of {len(region)} coordinates splits into 2 to {len(region)} parts, got "
            f"{len(gains)}"
        )
    if not bool(gains.isfinite().all()):
        raise NotFinite("gains hold NaN or infinities: they cannot be compared")
    shares = gains.double()
    shares = shares / shares.abs().sum(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    owner = _deal(shares, _equal_sizes(len(region), len(gains))) if balanced else shares.argmax(0)
    return tuple(Region(region.layout, region.index[owner == g]) for g in range(len(gains)))


def split_at_random(region: Region, sizes: Sequence[int], *, seed: int) -> tuple[Region, ...]:
    """Split a region into random parts of given sizes, the control of a split by gain.

    Args:
        region: The coordinates.
        sizes: Size of each part; they add up to that of the region.
        seed: Seed of the draw.

    Raises:
        ValueError: If the sizes do not add up.
    """
    if any(size < 0 for size in sizes) or sum(sizes) != len(region):
        raise ValueError(f"sizes must add up to {len(region)}, got {list(sizes)}")
    order = permutation(len(region), seed, "region split")
    return tuple(Region.of(region.layout, region.index[part]) for part in order.split(list(sizes)))


def _gradient(task: LearnableTask, region: Region, rows: Sequence[int]) -> Tensor:
    """Return the gradient of the mean loss of rows at a region, fp32, on the CPU."""
    with RegionParameters(task.model, region) as live, torch.enable_grad():
        for term in task.losses(rows, micro_batch=_ROWS_AT_ONCE):
            term.backward()
        found = live.vector.grad
        return torch.zeros(len(region)) if found is None else found.detach().float().cpu()


def _equal_sizes(whole: int, parts: int) -> list[int]:
    """Return sizes that differ by one at most, the larger ones first."""
    return [whole // parts + (place < whole % parts) for place in range(parts)]


def _deal(shares: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the group of each coordinate, int64, where each group takes as many as its size.

    Args:
        shares: Gain of each coordinate as a share of its group's, of shape (groups, coordinates).
        sizes: Number of coordinates of each group.
    """
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


def _check_groups(groups: Sequence[Sequence[int]], *, rows: int) -> None:
    """Refuse groups that are no disjoint, non-empty sets of a task's rows."""
    if len(groups) < 2:
        raise ValueError(f"a region is split between two groups of rows or more, got {len(groups)}")
    owner: dict[int, int] = {}
    for number, members in enumerate(groups):
        if not members:
            raise ValueError(f"group {number} has no rows: what serves it cannot be told")
        for row in members:
            if not 0 <= row < rows:
                raise ValueError(
                    f"group {number} names row {row} of a task with {rows} training rows; rows are "
                    "numbered from 0"
                )
            if row in owner:
                raise ValueError(
                    f"row {row} stands in group {owner[row]} and again in group {number}; a row is "
                    "in one group, once"
                )
            owner[row] = number


def _check_graft(task: LearnableTask, graft: Graft) -> None:
    """Refuse a graft of other parameters, and a precision that needs a loss scale."""
    if graft.region.layout != Layout.of(task.parameters):
        raise ValueError(
            f"the graft is of {graft.region.layout}, the task trains {Layout.of(task.parameters)}; "
            "is it a graft of another model?"
        )
    if task.precision == "fp16":
        raise ValueError("gains in fp16 round away; load the model in fp32 or bf16")
