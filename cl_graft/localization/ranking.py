"""Rankings: one gives nested regions for all densities, and for coordinates that are still free."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import ceil

import torch
from torch import Tensor

from cl_graft.errors import NotFinite
from cl_graft.grafts.drawn_order import find_coordinates
from cl_graft.grafts.graft import gather
from cl_graft.grafts.model_state import train_only
from cl_graft.grafts.region import Layout, Parameters, Region, union
from cl_graft.grafts.selection import refuse_nan, top_k
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.movement import movement
from cl_graft.localization.registry import Localizer, Score, find_localizer


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best coordinates of a task, best first.

    Attributes:
        layout: Layout of the graftable parameters.
        order: Coordinate numbers, int64, best first; a ranking may stop before the last one.

    Examples:
        >>> ranking = rank({"weight": torch.tensor([0.1, 0.9, 0.5])}, depth=3)
        >>> ranking.top(2).index.tolist()
        [1, 2]
    """

    layout: Layout
    order: Tensor

    def __repr__(self) -> str:
        return f"Ranking(the best {len(self.order):,} of {self.layout.total:,} coordinates)"

    def top(self, k: int, *, without: Region | None = None) -> Region:
        """Return exactly the first `k` coordinates, passing over those in `without`.

        Raises:
            ValueError: If the ranking does not hold that many.
        """
        order = self.order if without is None else self.without(without).order
        if not 1 <= k <= order.numel():
            raise ValueError(f"k must be in [1, {order.numel()}], got {k}")
        return Region.of(self.layout, order[:k])

    def without(self, region: Region) -> Ranking:
        """Return the ranking of all coordinates but those of a region."""
        if not len(region):
            return self
        taken = torch.zeros(self.layout.total, dtype=torch.bool)
        taken[region.index] = True
        return Ranking(self.layout, self.order[~taken[self.order]])

    def within(self, layout: Layout) -> Ranking:
        """Return the ranking with the numbers of a layout that holds all parameters of this one."""
        return Ranking(layout, self.layout.number_in(layout, self.order))


def localize(
    inputs: LocalizerInputs,
    localizer: str | Score | Localizer,
    *,
    k: int,
    steps: int = GraftingSettings.mask_steps,
    depth: int | None = None,
    candidates: int | None = None,
    parts: Sequence[tuple[Collection[str], float]] = (),
) -> Ranking:
    """Rank coordinates by a localizer.

    Args:
        inputs: The base, tuned weights and gradients.
        localizer: A localizer, its name, or a score function.
        k: Budget that the ranking is learned for; smaller and larger ones can be cut from it.
        steps: Number of gradient batches, at least 1.
        depth: Number of coordinates to rank; None means all.
        candidates: Rank only this many coordinates, those that moved most, where the localizer can
            score them alone; None means all.
        parts: Parameters by name with the share that they have in any first part of the ranking,
            as long as they last; each is ranked by itself. Empty ranks all together.

    Raises:
        InputError: If there is no localizer of this name.
        ValueError: If `k` or `depth` is out of range, `inputs` lack what the localizer needs, or a
            score is NaN.

    Examples:
        >>> from torch import nn
        >>> from cl_graft.localization import LocalizerInputs
        >>> model = nn.Linear(2, 2)
        >>> tuned = {name: p.detach().clone() for name, p in model.named_parameters()}
        >>> tuned["bias"] += torch.tensor([0.1, 0.2])
        >>> inputs = LocalizerInputs(
        ...     model=model,
        ...     parameters=dict(model.named_parameters()),
        ...     tuned=tuned,
        ...     losses=lambda step: [],
        ...     dev_score=lambda: 0.0,
        ...     train_score=lambda: 0.0,
        ...     seed=0,
        ... )
        >>> ranking = localize(inputs, "movement", k=2)
        >>> ranking.top(1).index.tolist(), ranking.top(2).index.tolist()
        ([5], [4, 5])
    """
    row = find_localizer(localizer)
    layout, block = inputs.layout, nullcontext()
    if row.allowed:
        inputs = replace(inputs, parameters=row.allowed(inputs.model, inputs.parameters))
        block = train_only(inputs.model, inputs.parameters.values())
    total = inputs.layout.total
    if not 1 <= k <= total:
        raise ValueError(f"k must be in [1, {total}], got {k}")
    if row.needs_dense_run and not inputs.tuned:
        raise ValueError(f"{row.name} needs densely fine-tuned weights: `inputs.tuned` is empty")
    if row.needs_path and not inputs.path:
        raise ValueError(f"{row.name} needs the path of the dense run: `inputs.path` is empty")
    if row.needs_gradients and torch.is_inference_mode_enabled():
        raise RuntimeError(
            f"{row.name} computes gradients, which torch.inference_mode() switches off; call it "
            "outside of the inference mode"
        )
    depth = total if depth is None else min(max(depth, k), total)
    parts = parts or [(inputs.parameters, 1.0)]
    if candidates is not None and row.score_candidates is not None:
        moved, most = movement(inputs, k=k, steps=steps), max(candidates, k)
        movers = [top_k(part, _share(part, share, most)) for part, share in _split(moved, parts)]
        subset = union([region.within(inputs.layout) for region in movers], layout=inputs.layout)
        values = row.score_candidates(inputs, subset, k=k, steps=steps)
        places = [subset.find(region.within(inputs.layout)) for region in movers]
        ranked = [
            rank_region(region, values[where.to(values.device)], depth=min(depth, len(region)))
            for region, where in zip(movers, places, strict=True)
        ]
    elif row.stored_as == "seed":
        ranked = [
            draw(part, seed=inputs.seed, depth=_share(part, share, depth))
            for part, share in _split(inputs.parameters, parts)
        ]
    else:
        with block:
            scores = row.score(inputs, k=k, steps=steps)
        order = rank_by_tensor if row.per_tensor else rank
        ranked = [
            order(part, depth=_share(part, share, depth)) for part, share in _split(scores, parts)
        ]
    if len(ranked) == 1:
        return ranked[0].within(layout)
    shares = [share for _, share in parts]
    return _interleave([ranking.within(layout) for ranking in ranked], shares)


def _split(
    scores: Parameters, parts: Sequence[tuple[Collection[str], float]]
) -> Iterator[tuple[Parameters, float]]:
    """Yield the scores of each part and its share; of a single part no tensor is looked at."""
    for names, share in parts:
        whole = len(names) == len(scores)
        yield scores if whole else {name: scores[name] for name in scores if name in names}, share


def _share(scores: Parameters, share: float, count: int) -> int:
    """Return how many of `count` coordinates a part gives, at most all that it has."""
    return min(ceil(share * count), sum(tensor.numel() for tensor in scores.values()))


def _interleave(rankings: Sequence[Ranking], shares: Sequence[float]) -> Ranking:
    """Order coordinates of rankings so that any first part has its share of each; ties in order."""
    numbers = [
        torch.arange(1, len(ranking.order) + 1, dtype=torch.float64) / share
        for ranking, share in zip(rankings, shares, strict=True)
    ]
    best = torch.cat(numbers).sort(stable=True).indices
    return Ranking(rankings[0].layout, torch.cat([ranking.order for ranking in rankings])[best])


def draw(parameters: Parameters, *, seed: int, depth: int) -> Ranking:
    """Take the first `depth` coordinates of the order that a seed names, without scores."""
    layout = Layout.of(parameters)
    order = find_coordinates(torch.arange(depth), seed=seed, total=layout.total)
    return Ranking(layout, order)


def rank(scores: Parameters, *, depth: int) -> Ranking:
    """Order the `depth` highest-scoring coordinates; ties go to the earlier coordinate.

    Raises:
        ValueError: If `depth` is not in [1, number of coordinates], or a score is NaN.

    Examples:
        >>> rank({"weight": torch.tensor([0.1, 0.9, 0.5])}, depth=2).order
        tensor([1, 2])
    """
    region = top_k(scores, depth)
    return rank_region(region, gather(scores, region).values, depth=depth)


def rank_by_tensor(scores: Parameters, *, depth: int) -> Ranking:
    """Order coordinates so that any first part of the ranking has the same share of every tensor.

    Coordinates are ordered by r/n, where a coordinate is the r-th best (r from 1) of a tensor with
    n entries. So the first Σ ⌊d·n⌋ coordinates are the top ⌊d·n⌋ of every tensor, as other code
    takes them; at a low density d, small tensors give none. Any other size can be cut from the same
    ranking, and regions stay nested. Ties go to the earlier tensor, and in a tensor to the earlier
    coordinate.

    Args:
        scores: One tensor a parameter.
        depth: Number of coordinates to rank.

    Raises:
        ValueError: If `depth` is not in [1, number of coordinates], or a score is NaN or
            infinitely high (`NotFinite`).

    Examples:
        >>> scores = {"large": torch.tensor([5.0, 4, 3, 2]), "small": torch.tensor([1.0, 0])}
        >>> rank_by_tensor(scores, depth=3).order
        tensor([0, 1, 4])
    """
    layout = Layout.of(scores)
    if not 1 <= depth <= layout.total:
        raise ValueError(f"depth must be in [1, {layout.total}], got {depth}")
    ranked: list[Ranking] = []
    sizes: list[int] = []
    for name, size in zip(layout.names, layout.sizes, strict=True):
        # At d = (depth + tensors) / total, Σ ⌊d·n⌋ is at least `depth`: each tensor loses less than
        # one coordinate by rounding down.
        most = min(size, size * (depth + len(layout.names)) // layout.total)
        if most:
            ranked.append(rank({name: scores[name].detach()}, depth=most).within(layout))
            sizes.append(size)
    ranking = _interleave(ranked, sizes)
    return Ranking(layout, ranking.order[:depth])


def rank_region(region: Region, scores: Tensor, *, depth: int) -> Ranking:
    """Order the `depth` highest-scoring coordinates of a region; ties go to the earlier one.

    Args:
        region: The coordinates that have scores; all others are left out.
        scores: One score a coordinate, of shape (size of the region,).
        depth: Number of coordinates to rank.

    Raises:
        ValueError: If `depth` is not in [1, size of the region], or a score is NaN or infinitely
            high (`NotFinite`).

    Examples:
        >>> region = Region.of(Layout.of({"weight": torch.zeros(5)}), [1, 2, 4])
        >>> rank_region(region, torch.tensor([0.2, 0.8, 0.5]), depth=2).order
        tensor([2, 4])
    """
    if not 1 <= depth <= len(region):
        raise ValueError(f"depth must be in [1, {len(region)}], got {depth}")
    refuse_nan([scores])
    if bool((scores == torch.inf).any()):
        raise NotFinite("scores hold infinities: they cannot be ranked")
    by_score = scores.cpu().sort(descending=True, stable=True).indices
    return Ranking(region.layout, region.index[by_score[:depth]])
