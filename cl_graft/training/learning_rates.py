"""Learning rates of dense training and of regions, by optimiser, and how they change over steps."""

from __future__ import annotations

import math
from typing import Literal

Optimizer = Literal["sgd", "adamw"]
"""Name of an optimiser."""

Decay = Literal["linear", "cosine", "constant"]
"""Form in which a learning rate falls: linearly or as half a cosine to 0, or constant."""

WARM_UP = 0.06
"""Share of the steps in which AdamW's learning rate rises, as in Hu et al., 2022 (LoRA on RoBERTa,
https://arxiv.org/abs/2106.09685, Appendix D), where it then falls linearly to 0."""

DENSE_LR = 0.05
"""Default learning rate of dense training with SGD."""

REGION_LR = 0.3
"""Default learning rate of a region with SGD, from which it falls linearly to 0."""

_ADAMW_STEP = 0.5


def rate_share(step: int, steps: int, *, decay: Decay, warm_up: float) -> float:
    """Return the share of its learning rate with which a step, from 0, is taken.

    The first ``floor(warm_up * steps)`` steps rise in a line, the others fall.

    Examples:
        >>> [rate_share(step, 4, decay="linear", warm_up=0.0) for step in range(4)]
        [1.0, 0.75, 0.5, 0.25]
    """
    rising = int(warm_up * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    done = min(1.0, (step - rising) / (steps - rising))
    if decay == "cosine":
        return (1 + math.cos(math.pi * done)) / 2
    return 1 - done if decay == "linear" else 1.0


def region_rate(optimizer: Optimizer, coordinates: int, *, given: float | None = None) -> float:
    """Return the learning rate of a region: the given one, else one that suits optimiser and size.

    AdamW moves every weight by up to its rate, so the norm of a step grows with the root of the
    region's size. The rate makes it 0.5 at most.

    Examples:
        >>> region_rate("sgd", 10_000), region_rate("adamw", 10_000)
        (0.3, 0.005)
    """
    if given is not None:
        return given
    return REGION_LR if optimizer == "sgd" else _ADAMW_STEP / math.sqrt(max(1, coordinates))
