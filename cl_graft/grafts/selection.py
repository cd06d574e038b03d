"""Selection: exactly the k highest-scoring coordinates of a whole model, as a region."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from cl_graft.errors import NotFinite
from cl_graft.grafts.region import Layout, Parameters, Region

_SAMPLE = 1 << 18
"""Scores that the cut is estimated from; where there are fewer than four times as many, all are
compared."""


def top_k(scores: Parameters, k: int) -> Region:
    """Select exactly the `k` highest-scoring coordinates of the whole model.

    Scores are compared across parameters, not within each. Ties at the cut go to the earlier
    coordinate, so the answer never depends on the sort or the device.

    Args:
        scores: One tensor a parameter, any float or integer dtype.
        k: Number of coordinates to select.

    Raises:
        ValueError: If `k` is not in [1, number of coordinates], or a score is NaN.

    Examples:
        >>> scores = {"weight": torch.tensor([0.1, 0.9, 0.5]), "bias": torch.tensor([0.5])}
        >>> top_k(scores, 2).index.tolist()
        [1, 2]
    """
    layout = Layout.of(scores)
    if not 1 <= k <= layout.total:
        raise ValueError(f"k must be in [1, {layout.total}], got {k}")
    index, values = _candidates(scores, k)
    cut = values.topk(k).values[-1]
    above = values > cut
    ties = (values == cut).nonzero().squeeze(1)[: k - int(above.sum())]
    chosen = torch.cat([above.nonzero().squeeze(1), ties]).sort().values
    return Region(layout, index[chosen.to(index.device)].cpu())


def _candidates(scores: Parameters, k: int) -> tuple[Tensor, Tensor]:
    """Return numbers and scores, in order, of coordinates that hold the `k` best.

    The scores of a whole model are not copied: a sample says where the cut lies.
    """
    sizes = [tensor.numel() for tensor in scores.values()]
    total, sample = sum(sizes), None
    refuse_nan(scores.values())
    if total >= 4 * _SAMPLE and len({tensor.dtype for tensor in scores.values()}) == 1:
        step = total // _SAMPLE | 1
        sample = torch.cat([tensor.detach().reshape(-1)[::step] for tensor in scores.values()])
    if sample is None or not sample.is_floating_point():
        return _at_least(scores, None)
    expected = k / total * len(sample)
    rank = math.ceil(expected + 4 * math.sqrt(expected) + 10)
    while rank < len(sample):
        index, values = _at_least(scores, float(sample.topk(rank).values[-1]))
        if len(values) >= k:
            return index, values
        rank *= 2
    return _at_least(scores, None)


def _at_least(scores: Parameters, floor: float | None) -> tuple[Tensor, Tensor]:
    """Return numbers and scores, in order, of the coordinates that score at least `floor`."""
    places: list[Tensor] = []
    values: list[Tensor] = []
    start = 0
    for tensor in scores.values():
        flat = tensor.detach().reshape(-1)
        if floor is None:
            where = torch.arange(flat.numel(), device=flat.device)
            values.append(flat)
        else:
            where = (flat >= floor).nonzero().squeeze(1)
            values.append(flat[where])
        places.append(where + start)
        start += flat.numel()
    return torch.cat(places), torch.cat(values)


def refuse_nan(values: Iterable[Tensor]) -> None:
    """Raise `NotFinite` if scores hold a NaN."""
    count = sum(int(v.isnan().sum()) for v in values if v.is_floating_point())
    if count:
        raise NotFinite(f"scores hold {count} NaN: they cannot be ranked")
