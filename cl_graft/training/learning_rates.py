"""Default learning rates of dense training and of regions, by optimiser.

That of a region trained by AdamW is a function of the region's size.
"""

from __future__ import annotations

import math
from typing import Literal

__all__ = ["DENSE_LR", "REGION_LR", "Optimizer", "region_rate"]

Optimizer = Literal["sgd", "adamw"]
"""Name of an optimiser."""

DENSE_LR = 0.05
"""Default learning rate of dense training with SGD."""

REGION_LR = 0.3
"""Default learning rate of a region with SGD, from which it falls linearly to 0."""

_ADAMW_STEP = 0.5


def region_rate(optimizer: Optimizer, coordinates: int, *, given: float | None = None) -> float:
    """Return the learning rate of a region: the given one, else one that suits optimiser and size.

    AdamW moves every weight by up to its rate, so the norm of a step grows with the root of the
    region's size. The rate makes it 0.5 at most, whatever the size.

    Args:
        optimizer: Optimiser of the region.
        coordinates: Size of the region; an empty one counts as 1.
        given: The rate that settings name, > 0; None where they name none.

    Examples:
        >>> region_rate("sgd", 10_000)
        0.3
        >>> region_rate("adamw", 10_000)
        0.005
    """
    if given is not None:
        return given
    return REGION_LR if optimizer == "sgd" else _ADAMW_STEP / math.sqrt(max(1, coordinates))
