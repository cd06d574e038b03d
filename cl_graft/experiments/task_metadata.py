"""What the bank records of a task: all that answering its texts later needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from cl_graft.data import Prompt, TextTask
from cl_graft.data.encoded_task import find_prompt
from cl_graft.experiments.base_model import learning_settings
from cl_graft.experiments.config import ExperimentConfig
from cl_graft.strategies import TaskMetadata

__all__ = ["is_recorded", "task_metadata"]


def task_metadata(
    task: TextTask, config: ExperimentConfig, *, seed: int, max_length: int | None = None
) -> TaskMetadata:
    """Describe a task for its bank entry.

    Args:
        task: The task.
        config: The experiment's settings.
        seed: The run's seed.
        max_length: Tokens a row; None means the config's, or else the task's own.
    """
    return TaskMetadata(
        name=task.name,
        metric=task.scored_by,
        metadata={
            "label_names": list(task.label_names),
            "pair": task.pair,
            "prompt": _prompt(find_prompt(task, config.model.family)),
            "max_length": max_length or config.stream.max_length or task.max_length,
            "rows": {split: len(getattr(task, split)) for split in ("train", "dev", "test")},
            "shots": config.stream.shots,
            "data_fingerprint": task.fingerprint,
            "settings_sha256": _settings_sha256(config, seed=seed),
        },
    )


def is_recorded(task: TaskMetadata, *, by: Mapping[str, object]) -> bool:
    """Tell whether an entry was learned as a task would be: from the same data, the same way.

    Args:
        task: What `task_metadata` says of the task.
        by: What the entry records; entries that do not record their settings never were.
    """
    said = {"metric": task.metric, **task.metadata}
    return all(by.get(key) == value for key, value in said.items())


def _settings_sha256(config: ExperimentConfig, *, seed: int) -> str:
    """Hash the settings of learning that are not recorded one by one."""
    values = {"seed": seed, **learning_settings(config)}
    for name in ("shots", "max_length"):
        del values["stream"][name]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _prompt(prompt: Prompt | None) -> dict[str, Any] | None:
    return {"template": prompt.template, "words": dict(prompt.words)} if prompt else None
