"""The parts of a config beside `stream`: model, grafting, training, comparison, output."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from cl_graft.errors import nearest
from cl_graft.kinds.kind import Kind
from cl_graft.kinds.prompts import Family
from cl_graft.localization.grafting_settings import REGION_LR, STEP_NORM, GraftingSettings
from cl_graft.localization.registry import RANDOM_RATE_FACTOR, SHORT_DENSE_SHARE
from cl_graft.runtime.batching import EVAL_BATCH
from cl_graft.runtime.byte_sizes import parse_bytes
from cl_graft.runtime.settings import list_fields, settings_class
from cl_graft.settings.stream_settings import StreamSettings, refuse_doubles, split_at_commas
from cl_graft.training.fine_tuning_settings import FineTuning, Optimizer
from cl_graft.training.rate_schedule import Decay

_MOST_SEEDS = 10_000


@settings_class
class ModelSettings:
    """The model at its base, and how it answers."""

    name: str = Field(
        default="minilm",
        description="'minilm' (the encoder of the demo extra), 'mpnet' (an encoder) or 'smollm2' "
        "(a causal model), fetched by python -m cl_graft.models.NAME, a hub name such as "
        "FacebookAI/roberta-base, or the folder of a checkpoint.",
    )
    family: Family = Field(
        default="encoder",
        description="How the model answers: an encoder with one head per task, a masked language "
        "model with label words, or a causal or an encoder-decoder one with label strings "
        "or free text.",
    )
    pooling: Literal["mean", "first"] = Field(
        default="mean", description="How an encoder's states become one vector."
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32", description="The type of the model's parameters."
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        default="fp32",
        description="Precision in which the model computes, in training and answers alike; its "
        "parameters stay float32. fp16 scales the loss.",
    )
    gradient_checkpointing: bool = Field(
        default=False,
        description="Keep only the inputs of blocks for the backward pass and compute the rest "
        "again: less memory, more time.",
    )
    trust_remote_code: bool = Field(
        default=False, description="Run code that comes with the checkpoint."
    )
    device: str = Field(
        default="auto", description="'cpu', 'cuda', …; 'auto' takes a GPU if there is one."
    )

    def __post_init__(self) -> None:
        if self.precision != "fp32" and self.dtype != "float32":
            raise ValueError(
                f"precision {self.precision!r} is for dtype float32, got {self.dtype!r}"
            )


@settings_class
class DenseSettings(FineTuning):
    """Settings of dense fine-tuning, whose learning rate can be left to the kind of a task."""

    lr: float | None = Field(  # pyright: ignore[reportIncompatibleVariableOverride]
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Learning rate of all dense training; null takes that of the task's kind.",
    )

    def of_kind(self, kind: Kind) -> FineTuning:
        """Return the schedule of a task of this kind."""
        return FineTuning(**{**asdict(self), "lr": kind.dense_lr if self.lr is None else self.lr})


@settings_class
class GraftingLoopSettings(GraftingSettings):
    """Settings of grafting, and of the loop that trains a region."""

    dense_share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Steps of the dense run as a share of `fine_tuning.steps`; below 1 its last "
        "values are taken, without evaluations on dev. null takes that of the localizer, which is "
        f"{SHORT_DENSE_SHARE} for movement and 1 for others, and 1 where dense values are kept "
        "(`retrain` off, `keep_standalone`).",
    )
    optimizer: Optimizer = Field(
        default="adamw", description="Optimiser of the region and of the head beside it."
    )
    lr: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Learning rate of the region; null takes, with AdamW, "
        f"{STEP_NORM:g} · s / √k for k weights, s the root mean square of the base's matrices "
        f"(0.0034 for 0.2 % of MiniLM), {RANDOM_RATE_FACTOR:g} times that for random regions, and "
        f"{REGION_LR} with SGD.",
    )
    head_lr: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Learning rate of the head beside the region; null takes that of the region, "
        "or less where `lr` is null, for random regions and for a head of more weights.",
    )
    lr_decay: Decay | None = Field(
        default=None,
        description="How the region's learning rate falls: 'linear' or 'cosine' to 0, or "
        "'constant'; null takes `fine_tuning.lr_decay`, and where that is null, too, 'linear'.",
    )
    evaluations: int | None = Field(
        default=None,
        ge=0,
        description="Number of evaluations on dev while a region trains; null takes "
        "`fine_tuning.evaluations`.",
    )

    def of_task(
        self, dense: FineTuning, *, seed: int, builds_on: tuple[str, ...] | None = None
    ) -> GraftingSettings:
        """Return the settings of a task with this schedule of its dense run."""
        evaluations = dense.evaluations if self.evaluations is None else self.evaluations
        every = math.ceil(dense.steps / evaluations) if evaluations else 0
        settings = replace(self, seed=seed, evaluate_every=every, builds_on=builds_on)
        return settings.with_dense_run(dense, self.dense_share)


@settings_class
class TrainingSettings:
    """Settings of training and evaluation that all strategies share, beside `fine_tuning`."""

    grid: bool = Field(
        default=False,
        description="Choose batch size and learning rate of each task on dev (9 dense runs).",
    )
    paper_steps: bool = Field(
        default=False,
        description="Take the paper's 16·n·min(k, 512) steps for n classes and k shots, in place "
        "of `fine_tuning.steps`.",
    )
    clip: float | None = Field(
        default=None,
        gt=0,
        description="Largest norm of a gradient in the loops of strategies; null means "
        "`fine_tuning.clip`.",
    )
    eval_batch: int = Field(default=EVAL_BATCH, ge=1, description="Rows per batch in evaluation.")


@settings_class
class ComparisonSettings:
    """Strategies, seeds, and values of settings to compare.

    `grouped` are names that stand here for a group such as ``"all"``.
    """

    grouped: ClassVar[frozenset[str]] = frozenset()

    strategies: list[str] = Field(
        default_factory=lambda: ["grafting", "naive", "independent"],
        min_length=1,
        description="The strategies to run; 'all' means all that can run here and learn these "
        "tasks, without the ablations of grafting; 'ablations' means these.",
    )
    strategy_settings: dict[str, dict[str, float | int | str | bool]] = Field(
        default_factory=dict,
        description="By strategy: its own settings, such as {ewc: {ewc_lambda: 10}}.",
    )
    seeds: list[int] = Field(
        default_factory=lambda: [0],
        min_length=1,
        description="The seeds to run each with: numbers and ranges such as 0-2,5.",
    )
    sweep: dict[str, list[float | int | str | bool | None]] = Field(
        default_factory=dict,
        description="Compare with each of several values of a setting: "
        "{grafting.density: [0.0005, 0.002]}, or of a strategy's own: {ewc: {ewc_lambda: [1, 10]}}."
        " Strategies that do not use the setting run once.",
    )
    orders: int | Literal["all"] = Field(
        default=1,
        description="Number of task orders on which strategies are compared: 1 is the given order "
        "alone, 'all' takes every order (of up to five tasks).",
    )
    tune: bool = Field(
        default=False,
        description="Choose each strategy's own values from its grid, on dev rows of the first two "
        "tasks, before it is compared; what strategy_settings give is not tuned.",
    )
    bytes_per_task: int | None = Field(
        default=None,
        ge=1,
        description="Make every strategy of a comparison as large as fits into this many bytes per "
        "task, such as 100kB, with head and indices; null: as the settings say.",
    )

    @field_validator("strategies", "seeds", mode="before")
    @classmethod
    def _split(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) and info.field_name == "seeds":
            return seeds_from(value)
        return [value] if isinstance(value, int) else split_at_commas(value)

    @field_validator("strategies")
    @classmethod
    def _know_the_strategies(cls, value: list[str]) -> list[str]:
        # Imported here: it loads Avalanche, which takes seconds.
        from cl_graft.strategies.registry import find_strategy

        groups = ("all", "ablations")
        names = [name if name in groups else find_strategy(name).name for name in value]
        return refuse_doubles(names)

    @field_validator("strategy_settings")
    @classmethod
    def _know_their_settings(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not value:
            return {}
        from cl_graft.strategies.registry import find_strategy

        for name, settings in value.items():
            find_strategy(name).check_settings(settings)
        return value

    @field_validator("seeds")
    @classmethod
    def _refuse_negative_seeds(cls, value: list[int]) -> list[int]:
        if min(value) < 0:
            raise ValueError(f"a seed must be at least 0, got {min(value)}")
        return refuse_doubles(value)

    @field_validator("sweep", mode="before")
    @classmethod
    def _flatten_the_sweep(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        flat: dict[str, Any] = {}
        for name, values in value.items():
            inner = values if isinstance(values, Mapping) else {"": values}
            for setting, given in inner.items():
                swept = split_at_commas(given)
                swept = swept if isinstance(swept, list) else [swept]
                for tried in swept:
                    if isinstance(tried, Mapping | list):
                        raise ValueError(f"a sweep takes numbers and names, got {tried!r}")
                flat[f"{name}.{setting}".rstrip(".")] = swept
        return flat

    @field_validator("sweep")
    @classmethod
    def _know_what_is_swept(cls, value: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for name, values in value.items():
            part, dot, _ = name.partition(".")
            if (not dot or part in PARTS) and name not in sweepable():
                raise ValueError(f"{name!r} cannot be swept: {nearest(name, sweepable())}")
            if not values:
                raise ValueError(f"{name} has no values")
        return value

    @field_validator("orders")
    @classmethod
    def _bound_the_orders(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 1:
            raise ValueError(f"must be at least 1 or 'all', got {value}")
        return value

    @field_validator("bytes_per_task", mode="before")
    @classmethod
    def _read_bytes(cls, value: Any) -> Any:
        return parse_bytes(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _size_or_sweep(self) -> Self:
        if self.sweep and self.bytes_per_task is not None:
            raise ValueError("bytes_per_task sizes the strategies, and a sweep would change that")
        return self


@settings_class
class OutputSettings:
    """Checkpoints of a run. They change no bit of its results."""

    checkpoint_seconds: float | None = Field(
        default=60.0,
        ge=0,
        description="Seconds between checkpoints, from which a killed run resumes; more if "
        "writing one takes over 1 % of that. null: none by time.",
    )
    checkpoint_steps: int | None = Field(
        default=None,
        ge=1,
        description="Steps between checkpoints, whatever they cost; null: none by steps.",
    )


PARTS: Mapping[str, type[Any]] = {
    "stream": StreamSettings,
    "model": ModelSettings,
    "fine_tuning": DenseSettings,
    "grafting": GraftingLoopSettings,
    "training": TrainingSettings,
    "comparison": ComparisonSettings,
    "output": OutputSettings,
}
"""The parts of a config, in the order in which a config is written."""

_FIXED = {
    *("stream.name", "stream.tasks", "stream.data"),
    *("stream.scenario", "stream.classes_per_experience"),
    *("stream.task_settings", "stream.on_bad_row"),
    *("model.name", "model.family", "model.trust_remote_code", "model.device"),
    "training.eval_batch",
}
"""Settings that a sweep cannot change: a comparison has the same tasks, rows and model."""


def sweepable() -> list[str]:
    """Return the settings that a sweep may change, by dotted name."""
    return [
        f"{part}.{name}"
        for part, cls in PARTS.items()
        for name, field in list_fields(cls).items()
        if part not in ("comparison", "output")
        and not field.exclude
        and f"{part}.{name}" not in _FIXED
    ]


def seeds_from(text: str) -> list[int]:
    """Read seeds as the command line takes them: ``"0,1,2"``, ``"0-2"`` or ``"0-2,5"``."""
    seeds: list[int] = []
    for part in (part.strip() for part in text.split(",")):
        match = re.fullmatch(r"(\d{1,18})(?:\s*-\s*(\d{1,18}))?", part, re.ASCII)
        if match is None:
            raise ValueError(f"seeds are numbers and ranges such as 0,1,2 or 0-2,5, got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + _MOST_SEEDS:
            raise ValueError(
                f"a range of seeds runs from the lower to the higher, over at most "
                f"{_MOST_SEEDS:,}, got {part!r}"
            )
        seeds += range(first, last + 1)
    return seeds
