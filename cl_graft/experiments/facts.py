"""What the bank records of a task: all that answering its texts later needs."""

from __future__ import annotations

from typing import Any

from cl_graft.experiments.config import ExperimentConfig
from cl_graft.strategies import TaskFacts
from cl_graft.tasks import Prompt, TextTask
from cl_graft.tasks.encoded import prompt_of

__all__ = ["task_facts"]


def task_facts(
    task: TextTask, config: ExperimentConfig, *, max_length: int | None = None
) -> TaskFacts:
    """Describe a task for its bank entry.

    Args:
        task: The task.
        config: The experiment's settings.
        max_length: Tokens a row; None means the config's, or else the task's own.
    """
    return TaskFacts(
        name=task.name,
        metric=task.scored_by,
        facts={
            "label_names": list(task.label_names),
            "pair": task.pair,
            "prompt": _prompt(prompt_of(task, config.family)),
            "max_length": max_length or config.max_length or task.max_length,
            "rows": {split: len(getattr(task, split)) for split in ("train", "dev", "test")},
            "shots": config.shots,
            "data_fingerprint": task.fingerprint,
        },
    )


def _prompt(prompt: Prompt | None) -> dict[str, Any] | None:
    return {"template": prompt.template, "words": dict(prompt.words)} if prompt else None
