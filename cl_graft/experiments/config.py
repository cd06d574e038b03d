"""The settings of an experiment: every one of them is described, and defaults, here.

A config comes from a YAML file, from the command line or from Python; unknown keys and names are
answered with the nearest known one. The defaults are tuned for the encoder MiniLM on two cores.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cl_graft.data.streams import expand_streams
from cl_graft.errors import InputError, nearest
from cl_graft.experiments.config_errors import sentence
from cl_graft.experiments.config_yaml import read_yaml, read_yaml_file
from cl_graft.experiments.presets import PAPER_MOST_SHOTS, PRESETS
from cl_graft.localization import find_localizer
from cl_graft.localization.settings import check_dense_run

__all__ = [
    "CELL_CHOICES",
    "LARGE_DENSITY",
    "REGION_FIELDS",
    "UPKEEP",
    "ExperimentConfig",
    "TaskSettings",
    "config_from",
    "density_note",
    "load_config",
    "override_",
    "seeds_from",
]

logger = logging.getLogger(__name__)

DEFAULT_STEPS = 500

LARGE_DENSITY = 0.1
"""Density above which a region is warned of."""

_MOST_SEEDS = 10_000

CELL_CHOICES = ("strategies", "seeds", "sweep")
"""The fields that say which cells a comparison has; every other field is common to all cells."""

REGION_FIELDS = (
    *("density", "localizer", "warmup_rows", "mask_steps", "mask_batch", "mask_candidates"),
    *("refill", "region_start", "retrain", "region_dropout", "mode", "keep_standalone"),
    *("region_lr", "region_decay", "region_evaluations"),
)
"""The fields that say nothing to strategies without regions."""

UPKEEP = ("checkpoint_seconds", "checkpoint_steps")
"""The fields that do not change a bit of what comes out."""

_NOT_SWEPT = frozenset(
    {
        *("tasks", "scenario", "classes_per_experience", "data", "task_settings", "on_bad_row"),
        *("max_megabytes", "model", "family", "trust_remote_code", "device", "preset"),
        *("strategies", "strategy_settings", "sweep", "orders", "tune", "bytes_per_task", "seeds"),
        *("eval_batch", *UPKEEP),
    }
)
"""The fields that say what is compared, with which rows and on which model."""


class TaskSettings(BaseModel):
    """How to read and ask one task, where its preset (or the default) does not fit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | None = Field(default=None, description="Column of the first text.")
    text_pair: str | None = Field(default=None, description="Column of the second text.")
    label: str | None = Field(default=None, description="Column of the label.")
    label_names: list[str] | None = Field(
        default=None, description="Label names in the order of the class ids."
    )
    metric: str | None = Field(
        default=None,
        description="Metric of the task's score: accuracy, f1, matthews, or a registered one.",
    )
    positive: str | None = Field(
        default=None,
        description="The label of which f1 of two labels is the F1; null means the data's own or "
        "the preset's, or else the second label.",
    )
    encoding: str | None = Field(
        default=None,
        description="Of its text files, such as cp1252; null means UTF-8, or what a file is found "
        "to be in.",
    )


class ExperimentConfig(BaseModel):
    """What to learn, with what, and how."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # The stream.
    tasks: list[str] = Field(
        min_length=1,
        description="The tasks in the order of the stream: names of presets or of built-in tasks, "
        "paths of files or folders, hub names, or registered streams of them; shared-50-0..19 "
        "are 20 generated tasks.",
    )
    scenario: Literal["task", "domain", "class"] = Field(
        default="task",
        description="'task': a head a task, picked by the task's label. 'domain': tasks with the "
        "same labels, one head, no task label. 'class': the labels of all tasks in one head, no "
        "task label.",
    )
    classes_per_experience: int | None = Field(
        default=None,
        ge=1,
        description="In the scenario 'class', split tasks into experiences of so many classes; "
        "null: a task is one experience.",
    )
    data: Path | None = Field(
        default=None,
        description="Folder that holds one folder or file a task; relative to where you are.",
    )
    shots: int | None = Field(
        default=512, ge=1, description="Training rows a class; null takes all there are."
    )
    shots_short: Literal["error", "all"] = Field(
        default="all",
        description="What to do with a class that has fewer rows: take all, with a note, or "
        "refuse.",
    )
    data_seed: int | None = Field(
        default=None,
        ge=0,
        description="Seed of the samples of rows; null means the run's own seed.",
    )
    max_train: int | None = Field(default=None, ge=1, description="Most training rows of a task.")
    max_dev: int | None = Field(
        default=256,
        ge=1,
        description="Most dev rows of a task; null: all. Checkpoints, masks and budgets are chosen "
        "on them, and looking at many costs as much as training.",
    )
    max_test: int | None = Field(
        default=1000, ge=1, description="Most test rows of a task; null: all."
    )
    max_length: int | None = Field(
        default=64, ge=4, description="Tokens a row; null means the largest that a task asks for."
    )
    on_bad_row: Literal["error", "skip"] = Field(
        default="error",
        description="What to do with a row that cannot be used: refuse the file, or leave the row "
        "out and count it in the results.",
    )
    max_megabytes: int | None = Field(
        default=None,
        ge=1,
        description="Most MB of a data file once unpacked, and 10,000 rows for each; null means "
        "500.",
    )
    task_settings: dict[str, TaskSettings] = Field(
        default_factory=dict, description="By task: columns, label names, metric, encoding."
    )

    # The model.
    model: str = Field(
        default="minilm",
        description="'minilm' (the encoder of the demo extra), a hub name, or the folder of a "
        "checkpoint.",
    )
    family: Literal["encoder", "masked_lm", "causal_lm"] = Field(
        default="encoder",
        description="How the model answers: an encoder with a head a task, a masked language "
        "model with label words, or a causal one with label strings.",
    )
    pooling: Literal["mean", "first"] = Field(
        default="mean", description="How an encoder's states become one vector."
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32", description="The type of the model's parameters."
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        default="fp32",
        description="In which the model computes, in training and answers alike; its parameters "
        "stay float32. fp16 scales the loss.",
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

    # Training.
    preset: Literal["default", "paper", "fast"] = Field(
        default="default",
        description="'paper' takes the schedule of the grafting paper: 16·n·k steps, batch size "
        "and learning rate chosen on dev from its grid, its mask, density 1e-4. 'fast' grafts "
        "without a dense run: regions from a few gradient batches at the base.",
    )
    steps: int | None = Field(
        default=None,
        ge=1,
        description="Optimiser steps of each training of a task: dense, region, naive. null means "
        f"{DEFAULT_STEPS}, in the paper preset 16·n·min(k, {PAPER_MOST_SHOTS}) for n classes.",
    )
    batch_size: int = Field(default=8, ge=1, description="Rows a step.")
    micro_batch: int | None = Field(
        default=None,
        ge=1,
        description="Rows computed at a time in training; null computes a batch at once, and 32 "
        "rows of the localizer's.",
    )
    lr: float = Field(
        default=0.05,
        gt=0,
        allow_inf_nan=False,
        description="Learning rate of all dense training (SGD).",
    )
    region_lr: float = Field(
        default=0.1, gt=0, allow_inf_nan=False, description="Learning rate of the region (SGD)."
    )
    region_decay: bool = Field(
        default=True,
        description="Let the region's learning rate fall linearly to 0; dense training keeps its "
        "rate, as in the paper.",
    )
    weight_decay: float = Field(
        default=1e-4, ge=0, allow_inf_nan=False, description="Of dense training."
    )
    clip: float = Field(default=1.0, gt=0, description="Largest norm of a gradient.")
    dense_optimizer: Literal["sgd", "adamw"] = Field(
        default="sgd",
        description="Of dense runs; 'adamw' lets the rate fall linearly to 0, as in the paper's "
        "code.",
    )
    dense_decay: Literal["matrices", "all"] = Field(
        default="matrices",
        description="What decays in dense runs: all but biases and LayerNorms, as in the paper's "
        "code, or all, as in its text.",
    )
    dense_clip: float | None = Field(
        default=None,
        ge=0,
        description="Largest norm of a gradient in dense runs; 0 does not clip, null means `clip`.",
    )
    dense_l1: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="Strength of an L1 penalty on the movement from the base in dense runs, taken "
        "as a proximal step; the paper uses 0.001 with AdamW.",
    )
    dense_mixout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Chance of a weight to fall back to the base in a step of a dense run.",
    )
    group_by_length: bool = Field(
        default=False,
        description="Make training batches of rows of similar length, which computes less padding "
        "and shuffles less freely. Dev and test rows always go by length.",
    )
    evaluations: int = Field(
        default=5,
        ge=0,
        description="Looks at dev while a task trains, in dense runs, regions and the loops of all "
        "strategies alike; the best is kept. 0 keeps the last.",
    )
    region_evaluations: int | None = Field(
        default=None,
        ge=0,
        description="Looks at dev in a region's training; null means as many as `evaluations`.",
    )
    grid: bool = Field(
        default=False,
        description="Choose batch size and learning rate of each task on dev (9 runs).",
    )

    # Grafting.
    density: float | Literal["auto"] = Field(
        default=0.002,
        description="Share of the graftable coordinates in a task's region, in (0, 1]; 'auto' "
        "takes the smallest that keeps 98 % of the dense score on dev.",
    )
    localizer: str = Field(default="learned_mask", description="How a region is found.")
    warmup_rows: int = Field(
        default=0,
        ge=0,
        description="Training rows on which a head is fitted to the base, for localizers that do "
        "without a dense run; 0 leaves the head at its first values, as a dense run does.",
    )
    mask_steps: int = Field(
        default=12, ge=1, description="Gradient batches that the localizer looks at."
    )
    mask_batch: int = Field(default=128, ge=1, description="Rows of such a batch.")
    mask_candidates: int | None = Field(
        default=20,
        ge=1,
        description="Let only the coordinates that moved most be chosen, this many times the "
        "region's size; null means all. Only for localizers that can look at some coordinates "
        "alone: learned_mask.",
    )
    refill: bool = Field(
        default=True,
        description="Rank among the coordinates that no earlier task owns, as late tasks "
        "would otherwise lose a part of their region.",
    )
    region_start: Literal["base", "tuned"] = Field(
        default="base",
        description="Where region training starts: at the base, or at the dense values.",
    )
    retrain: bool = Field(
        default=True,
        description="Train the region; off, it keeps the values of the independent run.",
    )
    region_dropout: bool = Field(
        default=True,
        description="Let the model's dropout act while the region trains; a step is cheaper "
        "without it.",
    )
    mode: Literal["prefix", "isolated"] = Field(
        default="prefix",
        description="A task is answered by the grafts of all tasks so far, or by its own alone.",
    )
    keep_standalone: bool = Field(
        default=False, description="Also keep each task's whole region with its dense values."
    )

    # What to run.
    strategies: list[str] = Field(
        default_factory=lambda: ["grafting", "naive", "independent"],
        min_length=1,
        description="The strategies to run; 'all' means all that can run here but the ablations of "
        "grafting, which 'ablations' means.",
    )
    strategy_settings: dict[str, dict[str, float | int | str | bool]] = Field(
        default_factory=dict,
        description="By strategy: its own settings, such as {ewc: {ewc_lambda: 10}}.",
    )
    sweep: dict[str, list[float | int | str | bool | None]] = Field(
        default_factory=dict,
        description="Compare with each of several values of a setting: {density: [0.0005, 0.002]}, "
        "or of a strategy's own: {ewc: {ewc_lambda: [1, 10]}}. Strategies about which it changes "
        "nothing run once.",
    )
    orders: int | Literal["all"] = Field(
        default=1,
        description="Orders of the tasks on which strategies are compared: the given one alone, "
        "so many different ones, or 'all' (of up to five tasks).",
    )
    tune: bool = Field(
        default=False,
        description="Choose each strategy's own values from its grid, on dev rows of the first two "
        "tasks, before it is compared; what strategy_settings give is not tuned.",
    )
    bytes_per_task: int | None = Field(
        default=None,
        ge=1,
        description="Make every strategy of a comparison as large as fits into this many bytes a "
        "task, its head and indices counted, such as 100kB; null: as the settings say.",
    )
    seeds: list[int] = Field(
        default_factory=lambda: [0], min_length=1, description="The seeds to run each with."
    )
    eval_batch: int = Field(default=64, ge=1, description="Rows a batch in evaluation.")
    checkpoint_seconds: float | None = Field(
        default=60.0,
        ge=0,
        description="Seconds between checkpoints, from which a killed run goes on; more where "
        "writing one takes over 1 % of that. null: none by time.",
    )
    checkpoint_steps: int | None = Field(
        default=None,
        ge=1,
        description="Steps between checkpoints, whatever they cost; null: none by steps.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, values: Any) -> Any:
        name = values.get("preset") if isinstance(values, Mapping) else None
        preset = PRESETS.get(name) if isinstance(name, str) else None
        return {**preset, **values} if preset is not None else values

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_values(cls, value: Any, info: ValidationInfo) -> Any:
        # pydantic would read true as 1.
        wanted = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and wanted is not bool:
            raise ValueError(f"got {value}; YAML reads yes, no, on and off so, unless quoted")
        return value

    @field_validator("sweep", mode="before")
    @classmethod
    def _flatten_the_sweep(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        flat: dict[str, Any] = {}
        for name, values in value.items():
            inner = values if isinstance(values, Mapping) else {"": values}
            for setting, own in inner.items():
                own = [part.strip() for part in own.split(",")] if isinstance(own, str) else own
                flat[f"{name}.{setting}".rstrip(".")] = own if isinstance(own, list) else [own]
        return flat

    @field_validator("sweep")
    @classmethod
    def _know_what_is_swept(cls, value: dict[str, list[Any]]) -> dict[str, list[Any]]:
        known = [name for name in cls.model_fields if name not in _NOT_SWEPT]
        for name, values in value.items():
            if "." not in name and name not in known:
                raise ValueError(f"{name!r} cannot be swept: {nearest(name, known)}")
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
        if not isinstance(value, str):
            return value
        from cl_graft.runtime.byte_sizes import parse_bytes

        return parse_bytes(value)

    @model_validator(mode="before")
    @classmethod
    def _expand_streams(cls, values: Any) -> Any:
        """Put the tasks of a stream in place of its name, and take the settings of its protocol."""
        names = values.get("tasks") if isinstance(values, dict) else None
        if isinstance(names, str):
            names = [part.strip() for part in names.split(",") if part.strip()]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return values
        tasks, settings = expand_streams(names, given=values)
        return {**settings, **values, "tasks": tasks}

    @field_validator("tasks", "strategies", "seeds", mode="before")
    @classmethod
    def _split_at_commas(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) and info.field_name == "seeds":
            return seeds_from(value)
        if isinstance(value, str):
            return [part.strip() for part in value.split(",") if part.strip()]
        return [value] if isinstance(value, int) else value

    @field_validator("tasks", "strategies", "seeds")
    @classmethod
    def _refuse_doubles(cls, value: list[Any]) -> list[Any]:
        doubled = sorted({str(item) for item in value if value.count(item) > 1})
        if doubled:
            raise ValueError(f"{', '.join(doubled)} is named twice")
        return value

    @field_validator("strategies")
    @classmethod
    def _know_the_strategies(cls, value: list[str], info: ValidationInfo) -> list[str]:
        # Imported here: it loads Avalanche, which takes seconds.
        from cl_graft.strategies.registry import find_strategy, list_available

        encoder = info.data.get("family") == "encoder"
        names: list[str] = []
        for name in value:
            if name in ("all", "ablations"):
                ablations = name == "ablations"
                scenario = info.data.get("scenario", "task")
                names += list_available(encoder=encoder, ablations=ablations, scenario=scenario)
            else:
                names.append(find_strategy(name).name)
        return list(dict.fromkeys(names))

    @field_validator("strategy_settings")
    @classmethod
    def _know_their_settings(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not value:
            return {}
        from cl_graft.strategies.registry import find_strategy

        for name, own in value.items():
            find_strategy(name).check_settings(own)
        return value

    @field_validator("seeds")
    @classmethod
    def _refuse_negative_seeds(cls, value: list[int]) -> list[int]:
        if min(value) < 0:
            raise ValueError(f"a seed must be at least 0, got {min(value)}")
        return value

    @field_validator("localizer")
    @classmethod
    def _know_the_localizer(cls, value: str) -> str:
        return find_localizer(value).name

    @model_validator(mode="after")
    def _compute_in_one_half_precision(self) -> Self:
        if self.precision != "fp32" and self.dtype != "float32":
            raise ValueError(
                f"precision {self.precision!r} is for dtype float32, got {self.dtype!r}"
            )
        return self

    @model_validator(mode="after")
    def _fit_the_scenario(self) -> Self:
        if self.classes_per_experience is not None and self.scenario != "class":
            raise ValueError(
                f"classes_per_experience is for scenario 'class', and scenario is {self.scenario!r}"
            )
        if self.scenario == "class" and self.family != "encoder":
            raise ValueError(
                "scenario 'class' is for encoders, whose head can hold the labels of all tasks; "
                f"family is {self.family!r}"
            )
        return self

    @field_validator("density")
    @classmethod
    def _bound_the_density(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not 0 < value <= 1:
            raise ValueError(f"must be in (0, 1] or 'auto', got {value}")
        return value

    @model_validator(mode="after")
    def _size_or_sweep(self) -> Self:
        if self.sweep and self.bytes_per_task is not None:
            raise ValueError("bytes_per_task sizes the strategies, and a sweep would change that")
        return self

    @model_validator(mode="after")
    def _fit_the_localizer(self) -> ExperimentConfig:
        check_dense_run(
            self.localizer,
            density=self.density,
            region_start=self.region_start,
            retrain=self.retrain,
            keep_standalone=self.keep_standalone,
        )
        return self

    def cell(self) -> dict[str, Any]:
        """Return as JSON what all cells of a comparison share."""
        return self.model_dump(mode="json", exclude=set(CELL_CHOICES))


def seeds_from(text: str) -> list[int]:
    """Read seeds as the command line takes them: ``"0,1,2"``, ``"0-2"`` or ``"0-2,5"``.

    Raises:
        ValueError: If a part is no number and no range, or a range runs backwards or is longer than
            10,000.
    """
    seeds: list[int] = []
    for part in (part.strip() for part in text.split(",")):
        found = re.fullmatch(r"(\d{1,18})(?:\s*-\s*(\d{1,18}))?", part, re.ASCII)
        if found is None:
            raise ValueError(f"seeds are numbers and ranges such as 0,1,2 or 0-2,5, got {text!r}")
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < first + _MOST_SEEDS:
            raise ValueError(
                f"a range of seeds runs from the lower to the higher, over at most "
                f"{_MOST_SEEDS:,}, got {part!r}"
            )
        seeds += range(first, last + 1)
    return seeds


def config_from(
    values: Mapping[str, Any], *, source: str = "config", origins: Mapping[str, str] | None = None
) -> ExperimentConfig:
    """Check settings and fill in what they leave open.

    Args:
        values: Settings by name.
        source: Where they came from, for messages.
        origins: Where some of them came from instead, by name, as in ``{"steps": "--steps"}`` or
            ``{"task_settings.mine.label": "--set"}``.

    Raises:
        InputError: If a key or name is unknown (with the nearest known one) or a value is out of
            its range.
    """
    try:
        return ExperimentConfig.model_validate(dict(values))
    except ValidationError as error:
        inner = TaskSettings.model_fields
        said = sentence(
            error,
            fields=ExperimentConfig.model_fields,
            inner=inner,
            source=source,
            origins=origins or {},
        )
        raise InputError(said) from None


def load_config(
    path: Path | str | None,
    sets: Sequence[str] = (),
    *,
    options: Mapping[str, object] | None = None,
) -> ExperimentConfig:
    """Read a config file; a region that is very large is warned of in the log.

    Args:
        path: A YAML file with the fields of `ExperimentConfig`; None starts from nothing.
        sets: Overrides such as ``"steps=200"`` or ``"task_settings.mine.label=stars"``; the
            value is YAML. They go before options.
        options: Options of the command line by the setting's name. They go before the file.

    Raises:
        InputError: If there is no such file, it is no YAML mapping, or a setting is wrong.
    """
    values = read_yaml_file(Path(path)) if path is not None else {}
    origins: dict[str, str] = {}
    for name, value in (options or {}).items():
        values[name] = json.loads(json.dumps(value, default=str))
        origins[name] = f"--{name.replace('_', '-')}"
    for override in sets:
        override_(values, override)
        origins[override.partition("=")[0].strip()] = "--set"
    source = str(path) if path is not None else "settings"
    config = config_from(values, source=source, origins=origins)
    if note := density_note(config.density):
        logger.warning("%s", note)
    return config


def density_note(density: float | Literal["auto"]) -> str:
    """Say what is lost where a region has a large share of the weights; empty where it has not."""
    if density == "auto" or density <= LARGE_DENSITY:
        return ""
    tasks = int(1 / density)
    return (
        f"warning: density {density:g} puts {density:.0%} of the weights into each task's region, "
        "and a weight has one owner: grafts of "
        f"{'two tasks' if tasks < 2 else f'{tasks + 1} tasks'} do not fit beside each other, and a "
        "graft is about as large as the model. 0.0001 to 0.01 is usual"
    )


def override_(values: dict[str, Any], override: str) -> None:
    """Set one value, such as ``"steps=200"``, in a mapping of settings.

    Raises:
        InputError: If the text has no ``=``, its value is no YAML, or an inner name has no place.
    """
    name, equals, text = override.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {override}: expected name=value or name.inner=value")
    value = read_yaml(text, place=f"--set {override}")
    inner = values
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise InputError(f"--set {override}: {key!r} has no inner settings")
    inner[keys[-1]] = value
