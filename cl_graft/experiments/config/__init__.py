"""The config of an experiment: its parts, how a YAML file becomes one, and the presets."""

from cl_graft.experiments.config.dotted_names import dotted, merged, nested, override_, put_
from cl_graft.experiments.config.experiment_config import (
    RUN_CHOICES,
    ExperimentConfig,
    config_from,
    load_config,
    make_config,
    warn_of_large_density,
)
from cl_graft.experiments.config.parts import PARTS

__all__ = [
    "PARTS",
    "RUN_CHOICES",
    "ExperimentConfig",
    "config_from",
    "dotted",
    "load_config",
    "make_config",
    "merged",
    "nested",
    "override_",
    "put_",
    "warn_of_large_density",
]
