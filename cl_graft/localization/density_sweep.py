"""The sparsity sweep: grafts of nested regions, all cut from one ranking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import nn

from cl_graft.grafts.graft import gather, grafted
from cl_graft.grafts.region import Parameters, Region
from cl_graft.localization import Ranking

__all__ = ["sparsity_sweep"]

T = TypeVar("T")


def sparsity_sweep(
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

    Args:
        model: The model at its base, which is put back there.
        tuned: Tuned values by name.
        ranking: Coordinates, best first.
        sizes: Sizes of the grafts, in coordinates.
        measure: Called with each graft in place.
        without: Coordinates to pass over, such as all but biases (Fig. 4a).

    Returns:
        (size, measure) of every graft.
    """
    found: list[tuple[int, T]] = []
    for size in sizes:
        with grafted(model, gather(tuned, ranking.top(size, without=without))):
            found.append((size, measure()))
    return found
