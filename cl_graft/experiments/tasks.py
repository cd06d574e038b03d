"""The tasks of a config, loaded and checked."""

from __future__ import annotations

from collections import Counter

from cl_graft.errors import InputError, nearest
from cl_graft.experiments.config import ExperimentConfig, TaskSettings
from cl_graft.tasks import TextTask, load_task

__all__ = ["data_seed_of", "load_tasks"]


def data_seed_of(config: ExperimentConfig, seed: int) -> int:
    """Return the seed of the samples of rows of a run."""
    return seed if config.data_seed is None else config.data_seed


def load_tasks(config: ExperimentConfig, *, seed: int) -> tuple[TextTask, ...]:
    """Load the tasks of a config for the run with a seed.

    Raises:
        InputError: If a task is unknown or its data cannot be used.
    """
    for name in config.task_settings:
        if name not in config.tasks:
            raise InputError(f"task_settings: no task {name!r} here; {nearest(name, config.tasks)}")
    tasks = tuple(_load(name, config, data_seed_of(config, seed)) for name in config.tasks)
    for name, count in Counter(task.name for task in tasks).items():
        if count > 1:
            raise InputError(f"{count} of the tasks are called {name!r}: results go by task name")
    for task in tasks:
        if task.regression:
            raise InputError(
                f"task {task.name!r} is a regression; experiments run classification tasks"
            )
    return tasks


def _load(name: str, config: ExperimentConfig, data_seed: int) -> TextTask:
    own = config.task_settings.get(name, TaskSettings())
    return load_task(
        name,
        data=config.data,
        shots=config.shots,
        data_seed=data_seed,
        shots_short=config.shots_short,
        max_train=config.max_train,
        max_dev=config.max_dev,
        max_test=config.max_test,
        **own.model_dump(),
    )
