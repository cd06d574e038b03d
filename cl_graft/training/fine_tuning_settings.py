"""Settings of dense fine-tuning, by default those of the paper's code (App. A.2)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cl_graft.runtime.settings import settings_class
from cl_graft.training.rate_schedule import WARM_UP, Decay

Optimizer = Literal["sgd", "adamw"]
"""Name of an optimiser."""

DENSE_LR = 0.05
"""Default learning rate of dense training with SGD."""


@settings_class
class FineTuning:
    """Settings of dense fine-tuning."""

    steps: int = Field(
        default=500,
        ge=1,
        description="Optimiser steps of each training of a task; by default grafting's dense run "
        "takes a share of them (`grafting.dense_share`).",
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
        description="Optimiser of dense runs, also those of independent fine-tuning. Naive "
        "fine-tuning and loops without an optimiser of their own take SGD.",
    )
    lr_decay: Decay | None = Field(
        default=None,
        description="How the learning rate of every training of a task falls: 'linear' or 'cosine' "
        "to 0, or 'constant'; null is linear with AdamW and in regions, and constant with SGD "
        "elsewhere.",
    )
    warm_up: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Share of the steps of every training of a task in which the learning rate "
        f"rises to its value; null is {WARM_UP} with AdamW and 0 with SGD.",
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
