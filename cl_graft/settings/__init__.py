"""The config of an experiment: its parts, how a YAML file becomes one, and the presets."""

from cl_graft.settings.experiment_config import (
    RUN_CHOICES,
    ExperimentConfig,
    config_from,
    load_config,
    make_config,
    merge_configs,
    override_,
    put_,
    to_dotted,
    to_nested,
    warn_of_large_density,
)
from cl_graft.settings.parts import PARTS

__all__ = [
    "PARTS",
    "RUN_CHOICES",
    "ExperimentConfig",
    "config_from",
    "load_config",
    "make_config",
    "merge_configs",
    "override_",
    "put_",
    "to_dotted",
    "to_nested",
    "warn_of_large_density",
]
