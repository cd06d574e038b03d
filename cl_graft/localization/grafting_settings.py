"""Settings of grafting: how a task's region is found and trained."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf, sqrt
from typing import Annotated, Any, Literal

from pydantic import Field, GetPydanticSchema, field_validator
from pydantic_core import core_schema

from cl_graft.errors import InputError
from cl_graft.grafts.blocks import Layers
from cl_graft.localization.modules import Modules
from cl_graft.localization.registry import Score, find_localizer
from cl_graft.runtime.settings import settings_class
from cl_graft.training.fine_tuning_settings import FineTuning, Optimizer

DEFAULT_DENSITY = 0.002
"""Share of the graftable coordinates in a region."""

REGION_LR = 0.3
"""Default learning rate of a region with SGD, from which it falls linearly to 0."""

STEP_NORM = 8.0
"""Norm of a step of AdamW in a region, as a multiple of `weight_scale` of the base."""

_ROWS_AT_ONCE = 32

_Function = Annotated[
    Score,
    GetPydanticSchema(
        lambda source, handler: core_schema.callable_schema(
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda score: find_localizer(score).name
            )
        )
    ),
]
"""A score function as pydantic checks and writes it."""


@settings_class
class GraftingSettings:
    """Settings of how a task's region is found and trained."""

    density: float = Field(
        default=DEFAULT_DENSITY,
        description="Share of the graftable coordinates in a task's region, in (0, 1].",
    )
    localizer: str | _Function = Field(
        default="movement_by_tensor",
        description="How a region is found: the name of a localizer, such as movement_by_tensor or "
        "learned_mask; in Python also a score function. In a config for a causal model the default "
        "is random, unless another setting of grafting needs a dense run.",
    )
    layers: Layers = Field(
        default="all",
        description="Blocks that a region may reach, counted from the top: a number, 'upper' (half "
        "of them) or 'all'. What lies below gets no backward pass.",
    )
    modules: Modules = Field(
        default="all",
        description="Weights that a region may reach: 'all', 'mlp' (the matrices of feed-forward "
        "parts), 'attention' (the other matrices of their blocks), the name of a layer such as "
        "down_proj, a pattern such as '*.0.attention.*', or a list of these. A mapping divides the "
        "region's size, as in {mlp: 0.7, attention: 0.3}.",
    )
    fine_tuning: FineTuning = Field(
        default_factory=partial(FineTuning, steps=100, evaluations=0),
        exclude=True,
        description="The dense run; localizers that need none do not read it.",
    )
    head_refit_rows: int = Field(
        default=512,
        ge=0,
        description="Training rows on which the head is fitted again, alone, to a region "
        "that keeps its dense values (`retrain` off); 0 keeps the head of the dense run.",
    )
    mask_steps: int = Field(
        default=12, ge=1, description="Gradient batches that the localizer takes."
    )
    mask_batch: int = Field(default=128, ge=1, description="Rows of a gradient batch.")
    mask_candidates: int | None = Field(
        default=20,
        ge=1,
        description="Choose only among the coordinates that moved most, this many times the "
        "region's size (and as many more as earlier tasks own); null means all. Only for "
        "localizers that can score a part of the coordinates: learned_mask.",
    )
    avoid_owned: bool = Field(
        default=True,
        description="Rank only the coordinates that no earlier task owns, so that later tasks keep "
        "their whole budget. If off, a region loses what earlier tasks own, as in the paper.",
    )
    retrain: bool = Field(
        default=True,
        description="Train the region, from the base, and the head. If off, the region keeps the "
        "values of the dense run.",
    )
    dropout: bool = Field(
        default=False,
        description="Use the model's dropout while the region trains. Few weights overfit little, "
        "and a step is cheaper without dropout. The dense run always has it.",
    )
    evaluate_every: int = Field(
        default=0,
        ge=0,
        exclude=True,
        description="Steps between evaluations on dev while the region trains; the best values "
        "are kept, of equal ones the later. 0 keeps the last.",
    )
    mode: Literal["prefix", "isolated"] = Field(
        default="prefix",
        description="A task is answered by the grafts of all tasks so far, or by its own alone.",
    )
    builds_on: tuple[str, ...] | None = Field(
        default=None,
        exclude=True,
        description="Names of the earlier tasks on whose grafts a task trains in prefix mode, with "
        "those that these build on; None means all.",
    )
    budgets: tuple[float, ...] = Field(
        default=(1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
        min_length=1,
        description="Densities that experiments on single tasks compare, each in (0, 1]; a stream "
        "has one density and does not read it.",
    )
    keep_standalone: bool = Field(
        default=False, description="Also keep each task's whole region with its dense values."
    )
    seed: int = Field(default=0, exclude=True, description="Seed of all random choices.")

    @field_validator("density")
    @classmethod
    def _bound_the_density(cls, value: float) -> float:
        if not 0 < value <= 1:
            raise ValueError(f"must be in (0, 1], got {value}")
        return value

    @field_validator("layers")
    @classmethod
    def _bound_the_layers(cls, value: Layers) -> Layers:
        if isinstance(value, int) and value < 1:
            raise ValueError(f"must be at least 1, 'upper' or 'all', got {value}")
        return value

    @field_validator("modules", mode="before")
    @classmethod
    def _bound_the_shares(cls, value: Any) -> Any:
        names = [value] if isinstance(value, str) else value
        shares = list(value.values()) if isinstance(value, dict) else [1]
        if not (
            isinstance(names, list | tuple | dict)
            and all(isinstance(name, str) and name for name in names)
            and all(type(n) in (int, float) and 0 <= n < inf for n in shares)
            and names
            and sum(shares)
        ):
            raise ValueError(
                "must be a name, a list of names, or a share of at least 0 for each, not all 0, as "
                f"in {{mlp: 0.7, attention: 0.3}}, got {value!r}"
            )
        return value

    @field_validator("budgets")
    @classmethod
    def _bound_the_budgets(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 < budget <= 1 for budget in value):
            raise ValueError(f"each must be in (0, 1], got {list(value)}")
        return value

    @field_validator("localizer")
    @classmethod
    def _know_the_localizer(cls, value: str | Score) -> str | Score:
        row = find_localizer(value)
        return row.name if isinstance(value, str) else value

    def __post_init__(self) -> None:
        row = find_localizer(self.localizer)
        if row.needs_dense_run:
            return
        asks = {"retrain=False": not self.retrain, "keep_standalone": self.keep_standalone}
        if refused := ", ".join(name for name, asked in asks.items() if asked):
            raise InputError(
                f"{refused} needs densely fine-tuned weights, but the localizer {row.name!r} "
                "chooses a region without a dense run; choose another localizer, such as "
                "'learned_mask'"
            )

    def with_dense_run(self, schedule: FineTuning, share: float | None = None) -> GraftingSettings:
        """Return settings whose dense run takes a share of the steps of a task's schedule.

        Args:
            schedule: The schedule of a whole fine-tuning.
            share: The share, in (0, 1]; below 1 the last values are taken, without evaluations on
                dev. None takes that of the localizer, or 1 where dense values are kept.
        """
        if share is None:
            keeps_values = self.keep_standalone or not self.retrain
            share = 1.0 if keeps_values else find_localizer(self.localizer).dense_share
        if share < 1:
            steps = max(1, round(share * schedule.steps))
            schedule = replace(schedule, steps=steps, evaluations=0)
        return replace(self, fine_tuning=schedule)

    @property
    def rows_at_once(self) -> int:
        """Rows that the localizer computes at a time."""
        return self.fine_tuning.micro_batch or _ROWS_AT_ONCE

    def coordinates(self, total: int) -> int:
        """Return the largest budget k among `total` coordinates; at least 1."""
        return max(1, round(self.density * total))

    def candidates(self, total: int, *, k: int, owned: int = 0) -> int | None:
        """Return how many of `total` coordinates may be chosen for a budget k; None means all."""
        if self.mask_candidates is None or find_localizer(self.localizer).score_candidates is None:
            return None
        count = self.mask_candidates * k + owned
        return count if count < total else None


def region_rate(
    optimizer: Optimizer, coordinates: int, *, scale: float, localizer: str | Score | None = None
) -> float:
    """Return the learning rate of a region in a base whose `weight_scale` is `scale`.

    AdamW moves every weight by about its rate, so a step in k weights has a norm of rate · √k. The
    rate makes this `STEP_NORM` · `scale`: larger in fewer weights, and in larger ones. A localizer
    may multiply it by its `rate_factor`.

    Examples:
        >>> region_rate("sgd", 10_000, scale=0.05), region_rate("adamw", 10_000, scale=0.05)
        (0.3, 0.004)
    """
    if optimizer == "sgd":
        return REGION_LR
    factor = find_localizer(localizer).rate_factor if localizer else 1.0
    return factor * STEP_NORM * scale / sqrt(max(1, coordinates))


def head_rate(optimizer: Optimizer, weights: int, *, scale: float, region: float) -> float:
    """Return the default learning rate of a head of some weights, beside a region with its rate.

    It is the region's rate, or that of a region of the head's size where that is less.
    """
    return min(region, region_rate(optimizer, weights, scale=scale))
