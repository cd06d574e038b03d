"""The tasks of a config, loaded and checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from cl_graft.data import TextTask, load_task
from cl_graft.data.audit import shared_rows
from cl_graft.data.encoded_task import encode_task
from cl_graft.errors import InputError, nearest
from cl_graft.experiments.config import ExperimentConfig, TaskSettings
from cl_graft.experiments.scenarios import formed
from cl_graft.models import Loaded, longest_row

__all__ = ["check_tasks", "data_seed_of", "load_tasks"]

_ROWS_TRIED = 4


def data_seed_of(config: ExperimentConfig, seed: int) -> int:
    """Return the seed of the samples of rows of a run."""
    return seed if config.data_seed is None else config.data_seed


def load_tasks(
    config: ExperimentConfig, *, seed: int, regressions: bool = False
) -> tuple[TextTask, ...]:
    """Load the tasks of a config for the run with a seed, in the form that it asks for.

    Test rows of a task that another task learns from are counted in the notes of its `source`.
    Nothing is logged: results tell what became of the data.

    Args:
        config: The settings.
        seed: The run's.
        regressions: Whether a task may be a regression.

    Raises:
        InputError: If a task is unknown, its data cannot be used, or it does not fit the form.
    """
    for name in config.task_settings:
        if name not in config.tasks:
            raise InputError(f"task_settings: no task {name!r} here; {nearest(name, config.tasks)}")
    tasks = tuple(_load(name, config, data_seed_of(config, seed)) for name in config.tasks)
    for name, count in Counter(task.name for task in tasks).items():
        if count > 1:
            raise InputError(f"{count} of the tasks are called {name!r}: results go by task name")
    for task in tasks:
        if task.regression and not regressions:
            raise InputError(f"task {task.name!r} is a regression; this runs classification tasks")
    tasks = tuple(
        replace(task, source={**task.source, "notes": [*_notes(task), *notes]})
        for task, notes in zip(tasks, shared_rows(tasks), strict=True)
    )
    return formed(tasks, config)


def _notes(task: TextTask) -> list[str]:
    said = task.source["notes"]
    return [str(note) for note in said] if isinstance(said, list) else []


def check_tasks(tasks: Sequence[TextTask], loaded: Loaded, config: ExperimentConfig) -> None:
    """Make sure that a model can be asked the tasks, before anything is computed.

    Prompts, label words and lengths are tried on a few rows of each task.

    Raises:
        InputError: If a prompt does not fit the family, leaves no room for a text, a label word has
            several tokens, or `max_length` is more than the model's positions.
    """
    length = config.max_length or max(task.max_length for task in tasks)
    most = longest_row(loaded.model)
    if most is not None and length > most:
        raise InputError(
            f"max_length must be at most {most}, the positions of {loaded.name!r}, got {length}"
        )
    for task in tasks:
        few = replace(
            task,
            train=task.train[:_ROWS_TRIED],
            dev=task.dev[:_ROWS_TRIED],
            test=task.test[:_ROWS_TRIED],
        )
        try:
            encode_task(few, loaded.tokenizer, family=config.family, max_length=length)
        except InputError as error:
            raise InputError(f"task {task.name!r}: {error}") from None


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
        on_bad_row=config.on_bad_row,
        max_megabytes=config.max_megabytes,
        warn=False,
        **own.model_dump(),
    )
