"""Settings of dense fine-tuning.

The defaults are those of the grafting paper and its code (App. A.2): SGD without momentum at a
constant rate, weight decay 1e-4 on everything but biases and LayerNorm weights, the gradient's
norm clipped to 1, the best checkpoint on dev kept and ties given to the later one.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from cl_graft.runtime.settings import settings_class

__all__ = ["DENSE_LR", "REGION_LR", "FineTuning", "Optimizer", "region_rate"]

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


@settings_class
class FineTuning:
    """Settings of dense fine-tuning."""

    steps: int = Field(
        default=500,
        ge=1,
        description="Optimiser steps of each training of a task: dense, region, naive.",
    )
    batch_size: int = Field(default=8, ge=1, description="Rows per step.")
    lr: float = Field(
        default=DENSE_LR,
        gt=0,
        allow_inf_nan=False,
        description="Learning rate of all dense training.",
    )
    optimizer: Optimizer = Field(
        default="sgd",
        description="Optimiser of dense runs; 'adamw' lets the rate fall linearly to 0, as in the "
        "grafting paper's code.",
    )
    momentum: float = Field(default=0.0, ge=0, lt=1, description="Momentum of SGD in dense runs.")
    weight_decay: float = Field(
        default=1e-4, ge=0, allow_inf_nan=False, description="Weight decay of dense training."
    )
    decay: Literal["matrices", "all"] = Field(
        default="matrices",
        description="Weights that decay in dense runs: all but biases and LayerNorms, as in the "
        "paper's code, or all, as in its text.",
    )
    clip: float = Field(
        default=1.0,
        ge=0,
        description="Largest norm of a gradient; 0 does not clip, as in the paper's text.",
    )
    l1: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="Strength of an L1 penalty on the movement from the base in dense runs, taken "
        "as a proximal step against the loss before clipping: a step whose gradient is clipped "
        "shrinks by as much less. The paper uses 0.001 with AdamW.",
    )
    mixout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Probability that a weight returns to the base in a step of a dense run.",
    )
    micro_batch: int | None = Field(
        default=None,
        ge=1,
        description="Rows computed at a time in training; null computes a batch at once. The "
        "gradient is the batch's, up to float rounding.",
    )
    group_by_length: bool = Field(
        default=False,
        description="Make training batches of rows of similar length, which computes less padding "
        "and shuffles less freely. Dev and test rows are always sorted by length.",
    )
    evaluations: int = Field(
        default=5,
        ge=0,
        description="Number of evaluations on dev while a task trains, evenly spaced; the best "
        "step is kept. 0 keeps the last step.",
    )
