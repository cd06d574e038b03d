"""Which settings experiments on single tasks do not read: they are refused, not ignored."""

from __future__ import annotations

from cl_graft.errors import InputError
from cl_graft.experiments.config import ExperimentConfig
from cl_graft.experiments.presets import PRESETS

__all__ = ["check_settings"]

_OF_STREAMS = (
    *("scenario", "classes_per_experience", "strategies", "strategy_settings", "sweep", "orders"),
    *("tune", "bytes_per_task", "mode", "refill", "retrain", "region_start", "region_dropout"),
    *("region_evaluations", "warmup_rows", "keep_standalone", "mask_candidates"),
)


def check_settings(config: ExperimentConfig) -> None:
    """Refuse settings that only streams know.

    Raises:
        InputError: If there is one that is not as its preset has it.
    """
    for name in _OF_STREAMS:
        plain = type(config).model_fields[name].get_default(call_default_factory=True)
        if getattr(config, name) != PRESETS[config.preset].get(name, plain):
            raise InputError(
                f"{name} is a setting of streams: an experiment on single tasks, and localize, do "
                "not read it; leave it out"
            )
