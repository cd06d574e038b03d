"""WiSE: models on the straight line from base to tuned, or from base to grafted.

θ(α) = base + α·(tuned − base) (WiSE-FT, Wortsman et al., 2022, https://arxiv.org/abs/2109.01903).
On a region alone it is WiSE-Graft (Panigrahi et al., 2023, Fig. 7,
https://arxiv.org/abs/2302.06600).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from cl_graft.grafts.graft import Graft, extract, gather, grafted
from cl_graft.grafts.region import Layout, Parameters, Region

__all__ = ["interpolated", "wise_curve"]

T = TypeVar("T")


@contextmanager
def interpolated(
    model: nn.Module, tuned: Parameters, *, alpha: float, region: Region | None = None
) -> Iterator[nn.Module]:
    """Put a model, at its base, at base + α·(tuned − base) for a `with` block.

    It is put back bit for bit.

    Args:
        model: The model.
        tuned: Tuned values by name.
        alpha: α; 0 is the base and 1 the tuned model, both exactly.
        region: Move here alone; None moves every parameter in `tuned`.
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
    """Measure a model, at its base, at several points between base and tuned.

    Args:
        model: The model.
        tuned: Tuned values by name.
        alphas: The points.
        measure: Called at each of them, such as scores in and out of distribution.
        region: Move here alone (WiSE-Graft); None moves every parameter (WiSE-FT).

    Returns:
        (α, measure) of every point.
    """
    curve: list[tuple[float, T]] = []
    for alpha in alphas:
        with interpolated(model, tuned, alpha=alpha, region=region):
            curve.append((alpha, measure()))
    return curve
