"""The course of the learning rate over a training's steps: how it rises and falls."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cl_graft.training.fine_tuning_settings import FineTuning

Decay = Literal["linear", "cosine", "constant"]
"""Form in which a learning rate falls: linearly or as half a cosine to 0, or constant."""

WARM_UP = 0.06
"""Share of the steps in which AdamW's learning rate rises, as in Hu et al., 2022 (LoRA on RoBERTa,
https://arxiv.org/abs/2106.09685, Appendix D), where it then falls linearly to 0."""


def with_rate_schedule(settings: FineTuning, *, is_region: bool = False) -> FineTuning:
    """Return settings whose decay and warm-up are given, by the optimiser where they were not.

    Examples:
        >>> from cl_graft.training.fine_tuning_settings import FineTuning
        >>> chosen = with_rate_schedule(FineTuning(optimizer="adamw"))
        >>> chosen.lr_decay, chosen.warm_up
        ('linear', 0.06)
        >>> with_rate_schedule(FineTuning()).lr_decay
        'constant'
    """
    is_sgd = settings.optimizer == "sgd"
    decay: Decay = "constant" if is_sgd and not is_region else "linear"
    warm_up = 0.0 if is_sgd else WARM_UP
    return replace(
        settings,
        lr_decay=settings.lr_decay or decay,
        warm_up=warm_up if settings.warm_up is None else settings.warm_up,
    )


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
