"""The start of a task's training: choice of earlier tasks, region, and its free coordinates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from cl_graft.inference.task_switch import Switch
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.region_search import find_region
from cl_graft.runtime.cache import Cache
from cl_graft.runtime.checkpoints import Checkpoints
from cl_graft.runtime.error_context import in_task
from cl_graft.strategies.bank_budget import coordinates_within
from cl_graft.strategies.earlier_tasks import choose_earlier
from cl_graft.strategies.head_start import earlier_head
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
    """
    own = metadata.get(label, TaskMetadata(f"task{label}"))
    label_names = own.metadata.get("label_names")
    reports = PhaseReports(strategy, name=own.name, label=label, progress=progress)
    reports.say(describe_cost(strategy, settings, rows=len(task.train)))
    with in_task(own.name):
        earlier = choose_earlier(
            task,
            settings,
            switch,
            names=[other.name for other in metadata.values()],
            label_names=label_names,
            cache=cache,
            progress=reports.step,
        )
        if earlier.scores:
            reports.say(earlier.describe(switch.bank))
        most = coordinates_within(
            switch.bank,
            task,
            settings,
            name=own.name,
            label=label,
            tasks_left=_count_tasks_left(strategy.experience),
            builds_on=earlier.positions,
            metadata=own.metadata,
        )
        found = find_region(
            task,
            settings,
            owned=switch.bank.owned(of=earlier.positions),
            most=most,
            dense=dense,
            cache=cache,
            checkpoints=checkpoints,
            progress=reports.step,
            measure=reports.measure,
        )
    free = switch.bank.free(found.region, builds_on=earlier.positions)
    if settings.retrain and len(free):
        check_rate(strategy.optimizer, coordinates=len(free))
    switch.carry_entries(earlier.positions)
    training = TaskTraining(
        strategy,
        model,
        switch,
        label=label,
        free=free,
        found=earlier.count(found),
        builds_on=earlier.positions,
        earlier_head=earlier_head(
            task, switch.bank, builds_on=earlier.positions, label=label, names=label_names
        ),
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


def _count_tasks_left(experience: Any) -> int:
    """Return how many experiences of its stream are still to be learned, with this one."""
    stream = experience.origin_stream
    length = len(stream) if hasattr(stream, "__len__") else 0  # lazy streams have none
    return max(1, length - int(experience.current_experience))
