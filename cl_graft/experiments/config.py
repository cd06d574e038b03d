"""The config of an experiment: parts, each of them a class of settings.

A config comes from a YAML file, from the command line or from Python; unknown keys and names are
answered with the nearest known one. The defaults are tuned for the encoder MiniLM on two cores.
"""

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

from cl_graft.errors import InputError, nearest
from cl_graft.experiments.config_parts import (
    PARTS,
    ComparisonSettings,
    GraftingLoopSettings,
    ModelSettings,
    OutputSettings,
    StreamSettings,
    TrainingSettings,
)
from cl_graft.experiments.config_yaml import read_yaml, read_yaml_file
from cl_graft.experiments.old_configs import MOVED
from cl_graft.experiments.presets import PRESETS
from cl_graft.runtime.settings import describe_faults, few_of, fields_of, settings_class
from cl_graft.training.fine_tuning import FineTuning

__all__ = [
    "CELL_CHOICES",
    "LARGE_DENSITY",
    "ExperimentConfig",
    "config_from",
    "density_note",
    "dotted",
    "load_config",
    "make_config",
    "merged",
    "nested",
    "override_",
    "put_",
]

logger = logging.getLogger(__name__)

LARGE_DENSITY = 0.1
"""Density above which a region is warned of."""

CELL_CHOICES = frozenset({"comparison.strategies", "comparison.seeds", "comparison.sweep"})
"""What says which cells a comparison has; everything else is common to all cells."""

_SET_BY_RUNS = {
    "fine_tuning": "fine_tuning",
    "seed": "comparison.seeds",
    "evaluate_every": "grafting.evaluations",
}
"""Fields of `GraftingSettings` that an experiment sets, and what it sets them by."""


@settings_class
class ExperimentConfig:
    """What to learn, with what, and how."""

    stream: StreamSettings = Field(description="The tasks to learn, and the rows of each.")
    model: ModelSettings = Field(
        default_factory=ModelSettings, description="The model at its base, and how it answers."
    )
    fine_tuning: FineTuning = Field(
        default_factory=FineTuning,
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
        description="What is written while a run goes on; changes no bit of what comes out.",
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
        if {"all", "ablations"} & set(names):
            every = list(dict.fromkeys(self._strategies(names)))
            comparison = replace(self.comparison, strategies=every)
            object.__setattr__(self, "comparison", comparison)
        return self

    def _strategies(self, names: Sequence[str]) -> Iterator[str]:
        """Yield strategies, groups of them by their members."""
        from cl_graft.strategies.registry import list_available

        encoder, scenario = self.model.family == "encoder", self.stream.scenario
        for name in names:
            if name in ("all", "ablations"):
                ablations = name == "ablations"
                yield from list_available(encoder=encoder, ablations=ablations, scenario=scenario)
            else:
                yield name

    @property
    def loop_clip(self) -> float:
        """Largest norm of a gradient in the loops of strategies; infinite for none."""
        return self.training.clip or self.fine_tuning.clip or math.inf

    def changed(self, values: Mapping[str, Any]) -> ExperimentConfig:
        """Return the config with other values, by dotted name as in ``{"stream.shots": 64}``.

        Raises:
            InputError: If a value is out of its range.
        """
        parts: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            part, _, field = name.partition(".")
            parts.setdefault(part, {})[field] = value
        own = {part: replace(getattr(self, part), **fields) for part, fields in parts.items()}
        return replace(self, **own)

    def values(self) -> dict[str, Any]:
        """Return all settings as JSON can hold them, by part."""
        return TypeAdapter(ExperimentConfig).dump_python(self, mode="json")

    def cell(self) -> dict[str, Any]:
        """Return as JSON can hold it what all cells of a comparison share, by part."""
        values = dotted(self.values())
        return nested({name: value for name, value in values.items() if name not in CELL_CHOICES})


def dotted(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of parts by dotted name, such as ``"stream.shots"``."""
    flat: dict[str, Any] = {}
    for part, own in values.items():
        if part in PARTS and isinstance(own, Mapping):
            flat |= {f"{part}.{name}": value for name, value in own.items()}
        else:
            flat[part] = own
    return flat


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return by part what stands by dotted name."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        put_(found, name, value)
    return found


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return two partial configs as one; what `over` says goes first."""
    both = dict(under) | dict(over)
    for part in PARTS:
        if isinstance(under.get(part), Mapping) and isinstance(over.get(part), Mapping):
            both[part] = {**under[part], **over[part]}
    return both


def config_from(
    values: Mapping[str, Any], *, source: str = "config", origins: Mapping[str, str] | None = None
) -> ExperimentConfig:
    """Check settings and fill in what they leave open.

    Args:
        values: Settings by part, as in a YAML file.
        source: Where they came from, for messages.
        origins: Where some of them came from instead, by dotted name, as in
            ``{"fine_tuning.steps": "--steps"}``.

    Raises:
        InputError: If a key or name is unknown (with the nearest known one, or the place to which
            an old key moved) or a value is out of its range.
    """
    origins = origins or {}
    told: dict[str, list[str]] = {}
    for name, sentence in _misplaced(values):
        told.setdefault(origins.get(name, source), []).append(sentence)
    if told:
        raise InputError("; ".join(f"{where}: {few_of(said)}" for where, said in told.items()))
    try:
        return TypeAdapter(ExperimentConfig).validate_python(_filled(values))
    except ValidationError as error:
        faults = describe_faults(error, ExperimentConfig, source=source, origins=origins)
        raise InputError("; ".join(f"{where}: {said}" for where, said in faults.items())) from None


def _filled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with those of their preset where they leave something open."""
    name = values.get("preset")
    preset = PRESETS.get(name, {}) if isinstance(name, str) else {}
    filled = merged(preset, values)
    own = values.get("fine_tuning")
    if preset and isinstance(own, Mapping) and "steps" in own:
        filled["training"] = {"paper_steps": False, **dict(values.get("training", {}))}
        filled = merged(preset, filled)
    filled = {part: {} if own is None and part in PARTS else own for part, own in filled.items()}
    return {"stream": {}, **filled}


def _misplaced(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the dotted names that stand in a wrong place, with a sentence on the right one."""
    short = {name: f"{part}.{name}" for part in PARTS for name in fields_of(PARTS[part])}
    short |= MOVED
    for name, value in values.items():
        if name in PARTS and (isinstance(value, Mapping) or value is None):
            for field in value or {}:
                yield from _misplaced_in(name, field)
        elif name in MOVED:
            yield name, f"{name!r} is now {MOVED[name]!r}"
        elif name in PARTS:
            yield name, _no_part(name, value)
        elif name not in fields_of(ExperimentConfig):
            near = get_close_matches(str(name), short, n=1)
            hint = f"did you mean {short[near[0]]!r}?" if near else nearest(str(name), PARTS)
            yield name, f"unknown key {name!r}; {hint}"


def _no_part(name: str, value: object) -> str:
    known = ", ".join(fields_of(PARTS[name]))
    return f"{name!r} is a part with settings of its own ({known}), got {value!r}"


def _misplaced_in(part: str, name: str) -> Iterator[tuple[str, str]]:
    place = f"{part}.{name}"
    if part == "grafting" and name in _SET_BY_RUNS:
        yield place, f"{place!r} is set by {_SET_BY_RUNS[name]!r}"
    elif name not in fields_of(PARTS[part]) and name in MOVED:
        yield place, f"{place!r} is now {MOVED[name]!r}"


def load_config(
    path: Path | str | None,
    sets: Sequence[str] = (),
    *,
    options: Mapping[str, object] | None = None,
    origins: Mapping[str, str] | None = None,
    under: Mapping[str, Any] | None = None,
) -> ExperimentConfig:
    """Read a config file; a region that is very large is warned of in the log.

    Args:
        path: A YAML file with the parts of `ExperimentConfig`; None starts from nothing.
        sets: Overrides such as ``"fine_tuning.steps=200"``; the value is YAML. They go before
            options.
        options: Options of the command line by the setting's dotted name. They go before the file.
        origins: What the options are called, by the same names, for messages.
        under: A partial config that goes after all of them.

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
    config = config_from(merged(under or {}, values), source=source, origins=origins)
    if note := density_note(config.grafting.density):
        logger.warning("%s", note)
    return config


def make_config(config: ExperimentConfig | Mapping[str, Any] | Path | str) -> ExperimentConfig:
    """Return a config, whether it is given as one, as settings by part, or as a YAML file's path.

    Raises:
        InputError: As `config_from` and `load_config` do.
    """
    if isinstance(config, ExperimentConfig):
        return config
    return config_from(config) if isinstance(config, Mapping) else load_config(config)


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
    """Set one value, such as ``"fine_tuning.steps=200"``, in a mapping of settings.

    Raises:
        InputError: If the text has no ``=``, its value is no YAML, or an inner name has no place.
    """
    name, equals, text = override.partition("=")
    if not equals or not all(name.strip().split(".")):
        raise InputError(f"--set {override}: expected part.field=value")
    value = read_yaml(text, place=f"--set {override}")
    put_(values, name.strip(), value, told=f"--set {override}")


def put_(values: dict[str, Any], name: str, value: Any, *, told: str = "") -> None:
    """Put a value at a dotted name of nested settings.

    Raises:
        InputError: If something that is no mapping stands on the way.
    """
    *outer, last = name.split(".")
    inner = values
    for key in outer:
        if inner.get(key) is None:
            inner[key] = {}
        found = inner[key]
        if not isinstance(found, dict):
            is_part = inner is values and key in PARTS
            fault = _no_part(key, found) if is_part else f"{key!r} has no inner settings"
            raise InputError(f"{told or name}: {fault}")
        inner = found
    inner[last] = value
