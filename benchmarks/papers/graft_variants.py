"""Weights beside those of a graft that the papers measure, each for a `with` block.

Grafts of many densities, points between base and tuned weights, tuned weights with 0 outside
of a region, and weights that fall back to the base at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from cl_graft.grafts.graft import Graft, copy_, extract, find_parameters, gather, grafted
from cl_graft.grafts.model_state import preserve_parameters
from cl_graft.grafts.region import Layout, Parameters, Region
from cl_graft.localization import Ranking
from cl_graft.training.fine_tuning import draw_mask

T = TypeVar("T")


def sweep_densities(
    model: nn.Module,
    tuned: Parameters,
    ranking: Ranking,
    *,
    sizes: Sequence[int],
    measure: Callable[[], T],
    without: Region | None = None,
) -> list[tuple[int, T]]:
    """Measure the grafts of a ranking's first coordinates (Panigrahi et al., 2023, Fig. 2).

    https://arxiv.org/abs/2302.06600. One localization serves all sizes.
    """
    found: list[tuple[int, T]] = []
    for size in sizes:
        with grafted(model, gather(tuned, ranking.top(size, without=without))):
            found.append((size, measure()))
    return found


@contextmanager
def interpolated(
    model: nn.Module, tuned: Parameters, *, alpha: float, region: Region | None = None
) -> Iterator[nn.Module]:
    """Put a model, at its base, at base + α·(tuned − base) for a `with` block.

    WiSE-FT (Wortsman et al., 2022, https://arxiv.org/abs/2109.01903); on a region alone it is
    WiSE-Graft (Panigrahi et al., 2023, Fig. 7, https://arxiv.org/abs/2302.06600). The model is put
    back bit for bit.
    """
    region = Region.full(Layout.of(tuned)) if region is None else region
    base, new = extract(model, region), gather(tuned, region)
    moved = torch.lerp(base.values.float(), new.values.float(), alpha).to(base.values.dtype)
    values = {0.0: base.values, 1.0: new.values}.get(float(alpha), moved)
    with grafted(model, Graft(region, values)):
        yield model


def wise_curve(
    model: nn.Module,
    tuned: Parameters,
    *,
    alphas: Sequence[float],
    measure: Callable[[], T],
    region: Region | None = None,
) -> list[tuple[float, T]]:
    """Measure a model, at its base, at several points between base and tuned."""
    curve: list[tuple[float, T]] = []
    for alpha in alphas:
        with interpolated(model, tuned, alpha=alpha, region=region):
            curve.append((alpha, measure()))
    return curve


@contextmanager
def lottery_ticket(model: nn.Module, tuned: Parameters, region: Region) -> Iterator[nn.Module]:
    """Let a model have its tuned values on a region and 0 outside for a `with` block.

    Grafting leaves the base's values outside; a lottery ticket has none there (Frankle and Carbin,
    2019, https://arxiv.org/abs/1803.03635; Panigrahi et al., 2023, Fig. 4b,
    https://arxiv.org/abs/2302.06600). Parameters beyond the region's layout (embeddings, heads)
    keep their values; everything is put back bit for bit.
    """
    parameters = find_parameters(model, region.layout)
    with preserve_parameters(parameters):
        for name, mask in region.masks().items():
            inside = mask.to(tuned[name].device)
            copy_(parameters, {name: torch.where(inside, tuned[name], 0)})
        yield model


@contextmanager
def mixed_evaluation(
    parameters: Mapping[str, nn.Parameter], base: Parameters, *, p: float, seed: int
) -> Iterator[None]:
    """Put each weight back to its base value with probability `p` for a `with` block.

    So does the repository of Fu et al., 2023 (https://arxiv.org/abs/2211.15583), which trains
    without Mixout. Afterwards the weights have their values again, bit for bit.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"p must be in [0, 1], got {p}")
    own = {name: parameters[name] for name in base}
    with preserve_parameters(own) as before:
        for name, value in base.items():
            fallen = draw_mask(value, p, seed, 0, name)
            copy_(own, {name: torch.where(fallen, value, before[name])})
        yield
