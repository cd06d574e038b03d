"""The config of an experiment, and its checks."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from cl_graft.data.streams import find_stream
from cl_graft.data.yaml_files import read_yaml, read_yaml_file
from cl_graft.errors import InputError, nearest
from cl_graft.localization.grafting_settings import region_rate
from cl_graft.runtime.settings import (
    describe_faults,
    find_origin,
    join_few,
    list_fields,
    settings_class,
)
from cl_graft.settings.parts import (
    PARTS,
    ComparisonSettings,
    DenseSettings,
    GraftingLoopSettings,
    ModelSettings,
    OutputSettings,
    TrainingSettings,
)
from cl_graft.settings.presets import PRESETS
from cl_graft.settings.stream_settings import StreamSettings
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.rate_schedule import with_rate_schedule

logger = logging.getLogger(__name__)

RUN_CHOICES = frozenset({"comparison.strategies", "comparison.seeds", "comparison.sweep"})
"""The settings that say which runs a comparison has; its runs share all others."""

_NEEDS_DENSE_RUN = ("keep_standalone", "dense_share")
"""Settings of grafting that need a dense run where they are given, as `retrain` does if off."""

_SET_BY_RUNS = {
    "fine_tuning": "fine_tuning",
    "seed": "comparison.seeds",
    "evaluate_every": "grafting.evaluations",
    "builds_on": "stream.task_settings",
}
"""Fields of `GraftingSettings` that an experiment sets, with the settings that they follow from."""


@settings_class
class ExperimentConfig:
    """The config of an experiment: tasks, model, training, comparison and output.

    Examples:
        >>> config = make_config({"stream": {"tasks": ["topic"]}, "grafting": {"density": 0.001}})
        >>> config.grafting.density
        0.001
    """

    stream: StreamSettings = Field(description="The tasks to learn, and the rows of each.")
    model: ModelSettings = Field(
        default_factory=ModelSettings, description="The model at its base, and how it answers."
    )
    fine_tuning: DenseSettings = Field(
        default_factory=DenseSettings,
        description="Dense training: the run from which a region is found, naive fine-tuning, and "
        "the steps and batches of the loops of all strategies.",
    )
    grafting: GraftingLoopSettings = Field(
        default_factory=GraftingLoopSettings,
        description="How a region is found and trained. Strategies without regions do not read it.",
    )
    training: TrainingSettings = Field(
        default_factory=TrainingSettings,
        description="What the loops of all strategies share beside `fine_tuning`.",
    )
    comparison: ComparisonSettings = Field(
        default_factory=ComparisonSettings,
        description="Strategies, seeds, and values of settings to compare.",
    )
    output: OutputSettings = Field(
        default_factory=OutputSettings,
        description="Checkpoints that are written during a run; they change no bit of its results.",
    )
    preset: Literal["default", "paper", "fast"] = Field(
        default="default",
        description="'paper' takes the schedule of the grafting paper: 16·n·k steps, batch size "
        "and learning rate chosen on dev from its grid, its mask, density 1e-4. 'fast' grafts "
        "without a dense run: regions from a few gradient batches at the base.",
    )

    @model_validator(mode="after")
    def _fit_the_parts(self) -> Self:
        if self.stream.scenario == "class" and self.model.family != "encoder":
            raise ValueError(
                "scenario 'class' is for encoders, whose head can hold the labels of all tasks; "
                f"family is {self.model.family!r}"
            )
        names = self.comparison.strategies
        if groups := {"all", "ablations"} & set(names):
            # Imported here: it loads Avalanche, which takes seconds.
            from cl_graft.strategies.registry import list_available

            members = {
                group: list_available(
                    encoder=self.model.family == "encoder",
                    ablations=group == "ablations",
                    scenario=self.stream.scenario,
                )
                for group in groups
            }
            named = [member for name in names for member in members.get(name, [name])]
            comparison = replace(self.comparison, strategies=list(dict.fromkeys(named)))
            grouped = {member for group in members.values() for member in group} - set(names)
            object.__setattr__(comparison, "grouped", frozenset(grouped))
            object.__setattr__(self, "comparison", comparison)
        return self

    @property
    def loop_clip(self) -> float:
        """Largest norm of a gradient in the loops of strategies; infinite for none."""
        return self.training.clip or self.fine_tuning.clip or math.inf

    def region_schedule(self, dense: FineTuning, *, coordinates: int, scale: float) -> FineTuning:
        """Return the schedule of a region of this size: steps and batches of its dense run."""
        optimizer, localizer = self.grafting.optimizer, self.grafting.localizer
        usual = region_rate(optimizer, coordinates, scale=scale, localizer=localizer)
        lr = self.grafting.lr or usual
        decay = self.grafting.lr_decay or dense.lr_decay
        region = replace(dense, optimizer=optimizer, lr=lr, weight_decay=0.0, lr_decay=decay)
        return with_rate_schedule(region, is_region=True)

    def with_values(self, values: Mapping[str, Any]) -> ExperimentConfig:
        """Return the config with other values, by dotted name as in ``{"stream.shots": 64}``.

        Raises:
            InputError: If a value is out of its range.
        """
        parts: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            part, _, field = name.partition(".")
            parts.setdefault(part, {})[field] = value
        changed = {part: replace(getattr(self, part), **fields) for part, fields in parts.items()}
        return replace(self, **changed)

    def values(self) -> dict[str, Any]:
        """Return all settings as JSON can hold them, by part."""
        return TypeAdapter(ExperimentConfig).dump_python(self, mode="json")

    def shared_values(self) -> dict[str, Any]:
        """Return the settings that all runs of a comparison share, as JSON can hold them."""
        values = to_dotted(self.values())
        return to_nested({name: value for name, value in values.items() if name not in RUN_CHOICES})


def config_from(
    values: Mapping[str, Any], *, source: str = "config", origins: Mapping[str, str] | None = None
) -> ExperimentConfig:
    """Check settings, and complete them by their preset and the defaults.

    Args:
        values: Settings by part, as in a YAML file.
        source: Origin of the settings, for messages.
        origins: Origin of single settings by dotted name, where it is another one, as in
            ``{"fine_tuning.steps": "--steps"}``.

    Raises:
        InputError: If a key or name is unknown (with the nearest known one, or the place to which
            an old key moved) or a value is out of its range.
    """
    origins = origins or {}
    misplaced: dict[str, list[str]] = {}
    for name, sentence in _find_misplaced(values):
        misplaced.setdefault(find_origin(name, origins) or source, []).append(sentence)
    if misplaced:
        faults = {origin: join_few(sentences) for origin, sentences in misplaced.items()}
        raise InputError("; ".join(f"{origin}: {fault}" for origin, fault in faults.items()))
    try:
        return TypeAdapter(ExperimentConfig).validate_python(_fill_in(values))
    except ValidationError as error:
        faults = describe_faults(error, ExperimentConfig, source=source, origins=origins)
        sentences = [f"{origin}: {fault}" for origin, fault in faults.items()]
        raise InputError("; ".join(sentences)) from None


def _fill_in(values: Mapping[str, Any]) -> dict[str, Any]:
    name = values.get("preset")
    preset = PRESETS.get(name, {}) if isinstance(name, str) else {}
    filled = merge_configs(preset, values)
    settings = values.get("fine_tuning")
    if preset and isinstance(settings, Mapping) and "steps" in settings:
        filled["training"] = {"paper_steps": False, **dict(values.get("training", {}))}
        filled = merge_configs(preset, filled)
    if _takes_random_regions(filled):
        filled["grafting"] = {"localizer": "random", **(filled.get("grafting") or {})}
    return {"stream": {}, **{k: {} if v is None and k in PARTS else v for k, v in filled.items()}}


def _takes_random_regions(values: Mapping[str, Any]) -> bool:
    """Tell whether the model is causal, and no setting of grafting asks for a dense run."""
    parts = [values.get(part) or {} for part in ("model", "grafting", "comparison")]
    if not all(isinstance(part, Mapping) for part in parts):
        return False
    model, grafting, comparison = parts
    asks = grafting.get("retrain") is False or any(map(grafting.get, _NEEDS_DENSE_RUN))
    swept = str(comparison.get("sweep"))
    asks = asks or any(name in swept for name in ("retrain", *_NEEDS_DENSE_RUN))
    return model.get("family") == "causal_lm" and not asks


def _find_misplaced(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the dotted names that are unknown or stand in a wrong place, with a sentence each."""
    short = {name: f"{part}.{name}" for part in PARTS for name in list_fields(PARTS[part])}
    short |= _SET_BY_RUNS
    for name, value in values.items():
        if name in PARTS and (isinstance(value, Mapping) or value is None):
            for field in value or {}:
                dotted = f"{name}.{field}"
                if name == "grafting" and field in _SET_BY_RUNS:
                    yield dotted, f"{dotted!r} is set by {_SET_BY_RUNS[field]!r}"
        elif name in PARTS:
            yield name, describe_part(name, value)
        elif name not in list_fields(ExperimentConfig):
            near = get_close_matches(str(name), short, n=1)
            hint = f"did you mean {short[near[0]]!r}?" if near else nearest(str(name), PARTS)
            yield name, f"unknown key {name!r}; {hint}"


def load_config(
    path: Path | str | None,
    sets: Sequence[str] = (),
    *,
    options: Mapping[str, object] | None = None,
    origins: Mapping[str, str] | None = None,
    under: Mapping[str, Any] | None = None,
) -> ExperimentConfig:
    """Read a config file, and warn in the log of a very large region and of a stream's pitfalls.

    Args:
        path: A YAML file with the parts of `ExperimentConfig`; None means no file.
        sets: Overrides such as ``"fine_tuning.steps=200"``, with a value in YAML. They override
            `options`.
        options: Options of the command line, by the setting's dotted name. They override the file.
        origins: Names of the options for messages, by the same names.
        under: A partial config that all of these override.

    Raises:
        InputError: If there is no such file, it is no YAML mapping, or a setting is wrong.
    """
    values = read_yaml_file(Path(path)) if path is not None else {}
    origins = dict(origins or {})
    for name, value in (options or {}).items():
        put_(values, name, json.loads(json.dumps(value, default=str)))
    for override in sets:
        override_(values, override)
        origins[override.partition("=")[0].strip()] = "--set"
    source = str(path) if path is not None else "settings"
    config = config_from(merge_configs(under or {}, values), source=source, origins=origins)
    for pitfall in find_stream(config.stream.name).pitfalls if config.stream.name else ():
        logger.warning("stream %s: %s", config.stream.name, pitfall)
    return config


def make_config(config: ExperimentConfig | Mapping[str, Any] | Path | str) -> ExperimentConfig:
    """Return a config, whether it is given as one, as settings by part, or as a YAML file's path.

    Raises:
        InputError: As `config_from` and `load_config` do.

    Examples:
        >>> make_config({"stream": {"tasks": ["topic"]}}).model.name
        'minilm'
    """
    if isinstance(config, ExperimentConfig):
        return config
    return config_from(config) if isinstance(config, Mapping) else load_config(config)


def to_dotted(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of parts by dotted name, such as ``"stream.shots"``."""
    flat: dict[str, Any] = {}
    for part, settings in values.items():
        if part in PARTS and isinstance(settings, Mapping):
            flat |= {f"{part}.{name}": value for name, value in settings.items()}
        else:
            flat[part] = settings
    return flat


def to_nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return by part the settings that are given by dotted name."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        put_(nested, name, value)
    return nested


def merge_configs(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return two partial configs as one, in which `over` overrides `under`."""
    both = dict(under) | dict(over)
    for part in PARTS:
        if isinstance(under.get(part), Mapping) and isinstance(over.get(part), Mapping):
            both[part] = {**under[part], **over[part]}
    return both


def override_(values: dict[str, Any], override: str) -> None:
    """Set one value, such as ``"fine_tuning.steps=200"``, in a mapping of settings."""
    name, equals, text = override.partition("=")
    if not equals or not all(name.strip().split(".")):
        raise InputError(f"--set {override}: expected part.field=value")
    value = read_yaml(text, origin=f"--set {override}")
    put_(values, name.strip(), value, source=f"--set {override}")


def put_(values: dict[str, Any], name: str, value: Any, *, source: str = "") -> None:
    """Put a value at a dotted name of nested settings."""
    *outer, last = name.split(".")
    inner = values
    for key in outer:
        if inner.get(key) is None:
            inner[key] = {}
        below = inner[key]
        if not isinstance(below, dict):
            is_part = inner is values and key in PARTS
            fault = describe_part(key, below) if is_part else f"{key!r} has no inner settings"
            raise InputError(f"{source or name}: {fault}")
        inner = below
    inner[last] = value


def describe_part(name: str, value: object) -> str:
    """Say that a part of the config was given as something that is not a mapping."""
    known = ", ".join(list_fields(PARTS[name]))
    return f"{name!r} is a part with settings of its own ({known}), got {value!r}"
