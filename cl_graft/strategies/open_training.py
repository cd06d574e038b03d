"""The start of a task's training: the earlier tasks under it, its region, and what is free."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from cl_graft.errors import InputError, nearest
from cl_graft.grafts.bank import GraftBank
from cl_graft.inference.task_switch import Switch
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.region_search import find_region
from cl_graft.runtime.cache import Cache
from cl_graft.runtime.checkpoints import Checkpoints
from cl_graft.runtime.error_context import in_task
from cl_graft.strategies.loop.phase_reports import PhaseReports, describe_cost
from cl_graft.strategies.strategy_checks import check_rate
from cl_graft.strategies.task_training import TaskMetadata, TaskTraining
from cl_graft.training.dense_run import DenseRun
from cl_graft.training.learnable_task import LearnableTask

__all__ = ["open_training"]

logger = logging.getLogger(__name__)


def open_training(
    strategy: Any,
    model: nn.Module,
    switch: Switch,
    *,
    task: LearnableTask,
    label: int,
    settings: GraftingSettings,
    metadata: Mapping[int, TaskMetadata],
    dense: DenseRun | None = None,
    cache: Cache | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> TaskTraining:
    """Find a task's region, and give its free coordinates to the strategy's optimiser.

    If there is nothing to train, the strategy is stopped.

    Args:
        strategy: The strategy, at the start of the task's experience.
        model: Model of the strategy, without wrappers.
        switch: Switch of the bank on the model.
        task: The task.
        label: Label of the task.
        settings: Settings of grafting for the task.
        metadata: Metadata of tasks by task label; the task may be missing.
        dense: Dense run, if it was made elsewhere.
        cache: Cache of dense runs and rankings.
        checkpoints: Checkpoints from which an interrupted phase resumes.
        progress: Function called as (phase, step, steps).

    Raises:
        InputError: If `settings.builds_on` names an unknown task.
    """
    own = metadata.get(label, TaskMetadata(f"task{label}"))
    reports = PhaseReports(strategy, name=own.name, label=label, progress=progress)
    reports.say(describe_cost(strategy, settings, rows=len(task.train)))
    with in_task(own.name):
        builds_on = _find_earlier(
            switch.bank, settings, names=[other.name for other in metadata.values()]
        )
        found = find_region(
            task,
            settings,
            owned=switch.bank.owned(of=builds_on),
            dense=dense,
            cache=cache,
            checkpoints=checkpoints,
            progress=reports.step,
            measure=reports.measure,
        )
    free = switch.bank.free(found.region, builds_on=builds_on)
    if settings.retrain and len(free):
        check_rate(strategy.optimizer, coordinates=len(free))
    switch.carry_entries(builds_on)
    training = TaskTraining(
        strategy,
        model,
        switch,
        label=label,
        free=free,
        found=found,
        builds_on=builds_on,
        task=task,
        settings=settings,
        measure=reports.measure,
    )
    if not len(free) and free.layout.total:
        logger.warning(
            "task %s: no coordinate of its region is free, the earlier tasks answer it%s",
            label,
            " through its own head" if task.head else "",
        )
    if not settings.retrain or not (len(free) or task.head):
        strategy.stop_training()
    return training


def _find_earlier(
    bank: GraftBank, settings: GraftingSettings, *, names: Iterable[str]
) -> tuple[int, ...]:
    """Return the positions of the entries that a task builds on, ascending.

    Args:
        bank: Bank of the earlier tasks.
        settings: Settings of the task.
        names: Names of all tasks of the stream, learned or not.
    """
    wanted = settings.builds_on
    if wanted is not None:
        known = {entry.task for entry in bank.entries} | set(names)
        for name in wanted:
            if name not in known:
                raise InputError(f"builds_on: no task {name!r} here; {nearest(name, known)}")
    if bank.mode == "isolated":
        return ()
    if wanted is None:
        return tuple(range(len(bank)))
    found: set[int] = set()
    for place, entry in enumerate(bank.entries):
        if entry.task in wanted:
            found |= {*bank.builds_on(place), place}
    return tuple(sorted(found))
