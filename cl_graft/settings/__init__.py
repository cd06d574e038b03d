"""The config of an experiment, and what tasks, banks and runs take from it or record of it.

`experiment_config` reads a YAML file into the config; `parts`, `stream_settings` and `presets` are
its parts, and `draft` writes a first one. `tasks` makes the tasks, `schedule_of_task` their steps,
batch and rate; `bank_metadata` is what a bank records, `run_files` what a run's folder holds, and
`data_report` what is to be said of its data.
"""

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
]
